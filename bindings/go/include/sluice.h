// The SDK of Sluice with a C interface: README.md says how to use it. An operation has a name, and JSON for its arguments and its answer.

#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

// The answer to an operation.
typedef struct SluiceAnswer SluiceAnswer;

// A question for credentials of AWS. Answer it once, with `sluice_credentials`, in any thread.
typedef struct SluiceCredentialsQuestion SluiceCredentialsQuestion;

// An operation that is under way.
typedef struct SluiceOperation SluiceOperation;

// What operations are called on.
typedef struct SluiceTarget SluiceTarget;

// Told the answer to an operation, once, in a thread of sluice; null if the operation was cancelled. It must
// not block.
typedef void (*SluiceDone)(uintptr_t context, SluiceAnswer *answer);

// Asks for credentials, in a thread of sluice, when they are needed. It must not block.
typedef void (*SluiceAskCredentials)(uintptr_t context, SluiceCredentialsQuestion *question);

// Told, once, that nothing is called with this context any more.
typedef void (*SluiceForget)(uintptr_t context);

// Told one event as JSON (`level`, `event`, `message`, `fields` as pairs), in a thread that does nothing
// else.
typedef void (*SluiceLog)(uintptr_t context, const char *record, uintptr_t length);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Connects a client with settings in JSON; without a table, those of the environment. Makes no request.
//
// # Safety
// `settings` points at `length` bytes.
SluiceAnswer *sluice_client(const char *settings,
                            uintptr_t length);

// Makes an estimator of tokens with settings in JSON.
//
// # Safety
// `settings` points at `length` bytes.
SluiceAnswer *sluice_estimator(const char *settings, uintptr_t length);

// Begins the operation `name` with `args` in JSON and, if `body` is not null, a body. Waits for the answer
// in this thread, at most `wait_ms` milliseconds. Returns null if the answer came: it is in `ready` then.
// Otherwise `done` is told the answer later, once; free the operation after that.
//
// # Safety
// `target` is of this library and not freed; the texts point at their lengths in bytes; `ready` points at a
// pointer.
SluiceOperation *sluice_call(const SluiceTarget *target,
                             const char *name_text,
                             uintptr_t name_length,
                             const char *args,
                             uintptr_t args_length,
                             const char *body,
                             uintptr_t body_length,
                             SluiceDone done,
                             uintptr_t context,
                             uint32_t wait_ms,
                             SluiceAnswer **ready);

// Cancels an operation: it gives back what it has, and `done` is told null, unless it was told the answer
// before.
//
// # Safety
// `operation` is of `sluice_call` and not freed.
void sluice_cancel(const SluiceOperation *operation);

// What can be told, or done, without a wait.
//
// # Safety
// `target` is of this library and not freed; the texts point at their lengths in bytes.
SluiceAnswer *sluice_look(const SluiceTarget *target,
                          const char *name_text,
                          uintptr_t name_length,
                          const char *args,
                          uintptr_t args_length);

// Puts a grant into a tracker; after a failure, the caller holds it still.
//
// # Safety
// Both targets are of this library and not freed; `args` points at `length` bytes.
SluiceAnswer *sluice_store(const SluiceTarget *tracker,
                           const char *args,
                           uintptr_t length,
                           const SluiceTarget *grant);

// Reads a piece of a reply's body, decoded.
//
// # Safety
// `target` is of this library and not freed; `piece` points at `length` bytes.
void sluice_feed(const SluiceTarget *target, const char *piece, uintptr_t length);

// What is told, as JSON that is not terminated. It lives as long as the answer.
//
// # Safety
// `answer` is of this library and not freed; `length` points at a number.
const char *sluice_answer_value(const SluiceAnswer *answer, uintptr_t *length);

// Why the operation failed, as JSON (`class`, `message`, `retry`); null if it did not.
//
// # Safety
// `answer` is of this library and not freed; `length` points at a number.
const char *sluice_answer_failure(const SluiceAnswer *answer, uintptr_t *length);

// The body of a request or a reply; null if there is none. It lives as long as the answer.
//
// # Safety
// `answer` is of this library and not freed; `length` points at a number.
const char *sluice_answer_bytes(const SluiceAnswer *answer, uintptr_t *length);

// Takes out what was made; null if there is nothing.
//
// # Safety
// `answer` is of this library and not freed, and nobody else uses it.
SluiceTarget *sluice_answer_made(SluiceAnswer *answer);

// Takes out the first of more that was made, as an answer of its own; null if there is no more.
//
// # Safety
// `answer` is of this library and not freed, and nobody else uses it.
SluiceAnswer *sluice_answer_next(SluiceAnswer *answer);

// Frees a target. What it holds goes back; nobody waits for that.
//
// # Safety
// `target` is of this library and not freed, or null.
void sluice_target_free(SluiceTarget *target);

// Frees an operation. It goes on, if it is under way.
//
// # Safety
// `operation` is of this library and not freed, or null.
void sluice_operation_free(SluiceOperation *operation);

// Frees an answer, with what was made and not taken out.
//
// # Safety
// `answer` is of this library and not freed, or null.
void sluice_answer_free(SluiceAnswer *answer);

// The same with credentials of the program: `ask` is asked for them at the first request, and again before
// they end. When the client and all that it made are gone, `forget` is told.
//
// # Safety
// `settings` points at `length` bytes.
SluiceAnswer *sluice_client_with_credentials(const char *settings,
                                             uintptr_t length,
                                             SluiceAskCredentials ask,
                                             uintptr_t context,
                                             SluiceForget forget);

// Answers a question, and frees it: with JSON (`accessKeyId`, `secretAccessKey`, `sessionToken`, `expiresMs`
// since 1970; the last two may be missing), or with `{"error": "why there are none"}`.
//
// # Safety
// `question` is of this library and not answered; `keys` points at `length` bytes.
void sluice_credentials(SluiceCredentialsQuestion *question,
                        const char *keys,
                        uintptr_t length);

// Sends the events of the process of this level (`error`, `warn`, `info`, `debug`) and above to `log` from
// now on, and no longer to another. When another took its place, and `log` was told what happened before,
// `forget` is told.
//
// # Safety
// `level` points at `length` bytes.
SluiceAnswer *sluice_log(const char *level,
                         uintptr_t length,
                         SluiceLog log,
                         uintptr_t context,
                         SluiceForget forget);

// Sends events to nobody.
void sluice_log_end(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SLUICE_H */
