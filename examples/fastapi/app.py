"""A service in FastAPI. Every call to the vendor is limited by the transport of its client; what would wait too long is
answered with 503 and Retry-After, before the vendor is called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from openai import AsyncOpenAI, DefaultAsyncHttpx2Client, RateLimitError
from pydantic import BaseModel

import sluice.httpx2


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # One client for the process. Its end gives back what is held.
    async with sluice.AsyncClient.from_env() as limits:
        transport = sluice.httpx2.AsyncTransport("openai", client=limits, patience=20, ask_usage=True)
        http = DefaultAsyncHttpx2Client(transport=transport)
        # No retries of its own: the wait is in the limiter's queue, and beyond it the caller is told.
        app.state.openai = AsyncOpenAI(http_client=http, max_retries=0)
        yield


app = FastAPI(lifespan=lifespan)


class Question(BaseModel):
    text: str
    max_tokens: int = 50


@app.post("/answer")
async def answer(question: Question, request: Request) -> dict[str, str | None]:
    openai: AsyncOpenAI = request.app.state.openai
    reply = await openai.chat.completions.create(
        model="small",
        max_completion_tokens=question.max_tokens,
        messages=[{"role": "user", "content": question.text}],
    )
    return {"text": reply.choices[0].message.content}


@app.post("/chat")
async def chat(question: Question, request: Request) -> StreamingResponse:
    openai: AsyncOpenAI = request.app.state.openai
    # Before the first byte: a refusal is a status, not a stream that breaks off.
    stream = await openai.chat.completions.create(
        model="small",
        max_completion_tokens=question.max_tokens,
        messages=[{"role": "user", "content": question.text}],
        stream=True,
    )

    async def pieces() -> AsyncIterator[str]:
        # A reader who leaves closes the stream, and its slot comes back.
        async with stream:
            async for chunk in stream:
                if chunk.choices:
                    yield chunk.choices[0].delta.content or ""

    return StreamingResponse(pieces(), media_type="text/plain")


@app.exception_handler(RateLimitError)
async def busy(_request: Request, error: RateLimitError) -> JSONResponse:
    """Of the limiter or of the vendor: both say when to come again."""
    headers = {"Retry-After": error.response.headers.get("Retry-After", "5")}
    return JSONResponse({"error": "busy"}, status_code=503, headers=headers)
