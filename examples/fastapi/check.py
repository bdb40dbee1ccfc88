"""Serves the app, leaves four streams, asks 60 questions at once, a third of them streamed, and one in a cool-down."""

import asyncio

import httpx2
import uvicorn
from app import app

import sluice


async def main() -> None:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as browser:
        # Readers who leave after the first piece, one for each slot.
        for at in range(4):
            async with browser.stream("POST", "/chat", json={"text": f"question {at}"}) as left:
                async for _piece in left.aiter_bytes():
                    break

        asked = [
            browser.post("/chat" if at % 3 == 0 else "/answer", json={"text": f"question {at}"}) for at in range(60)
        ]
        replies = await asyncio.gather(*asked)
        answered = sum(reply.status_code == 200 and "Good morning" in reply.text for reply in replies)
        print(f"{answered} of 60 questions answered")
        assert answered == 60, [reply.text for reply in replies if reply.status_code != 200]

        # As after a 429 that another product met.
        async with sluice.AsyncClient.from_env() as other:
            await other.cool_down("openai#rpm", 60)
            refused = await browser.post("/answer", json={"text": "one more"})
        wait = int(refused.headers["Retry-After"])
        print(f"during a cool-down of 60 s: {refused.status_code}, Retry-After: {wait}")
        assert refused.status_code == 503
        assert 20 < wait <= 61
    server.should_exit = True
    await serving


asyncio.run(main())
