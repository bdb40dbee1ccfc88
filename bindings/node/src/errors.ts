import type { RetryIn } from "./values.js";

/** Every error of this package. The texts are those of the Rust SDK. */
export class SluiceError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** A setting that cannot be used. */
export class ConfigError extends SluiceError {}

/** The limiter could not do what was asked. A refusal of `acquire` is no error: it is a `RetryIn`. */
export class LimitError extends SluiceError {
  /** In how many seconds another try is worthwhile: for `Retry-After`, or for SQS's `DelaySeconds`. */
  get delaySeconds(): number {
    return 1;
  }
}

/** No start was available within the wait of a slot; the call was not made. */
export class RefusedError extends LimitError {
  constructor(
    message: string,
    readonly retry: RetryIn,
  ) {
    super(message);
  }

  override get delaySeconds(): number {
    return this.retry.delaySeconds;
  }
}

/** The start, or DynamoDB's answer, came too late; the call was not made. */
export class TimedOutError extends LimitError {}

/** The client is closed, or was closed while the call was running. */
export class ClosedError extends LimitError {}

/** The grant or the slot has ended before. */
export class EndedError extends LimitError {}

/** Neither a grant nor a refusal; nothing was taken. */
export class AcquireError extends LimitError {}

/** The request is invalid, whatever the table contains. */
export class RequestError extends AcquireError {}

/** The table has no bucket of this name. */
export class UnknownDimensionError extends AcquireError {}

/** The call costs more than the capacity of the bucket. */
export class NeverSatisfiableError extends AcquireError {}

/** The bucket has more slots than its row has room for leases. */
export class TooLargeForInlineError extends AcquireError {}

/** The row of the bucket cannot be read. */
export class CorruptRowError extends AcquireError {}

/** The table did not answer, or rejected the request. */
export class StoreError extends AcquireError {}

/** There is no such table in this Region, or at this endpoint. */
export class NoTableError extends StoreError {}

/** No credentials were found, or AWS did not accept them. */
export class CredentialsError extends StoreError {}

/** The role lacks the right to an operation. */
export class AccessDeniedError extends StoreError {}

/** DynamoDB cannot be reached, does not answer in time, or fails. */
export class UnavailableError extends StoreError {}

/** Other writers were faster in every try. Nothing was applied. */
export class ContendedError extends StoreError {}

/** DynamoDB rejected the request itself. */
export class RejectedError extends StoreError {}

/** What the call used could not be settled. */
export class SettleError extends LimitError {}

/** A release could not be confirmed. The slot comes back at the latest when its lease ends. */
export class ReleaseError extends LimitError {}

/** The lease ended, and its slot was given back: someone else may hold it. */
export class LeaseGoneError extends LimitError {}

/** The ticket cannot be read or judged; acquire again without it. */
export class RedeemError extends LimitError {}

/** A penalty could not be applied. */
export class PenalizeError extends LimitError {}

/** A level could not be set. */
export class RefillError extends LimitError {}

/** A limit could not be applied. */
export class LimitsError extends SluiceError {}

/** A sweep ended early: the table did not answer. */
export class SweepError extends SluiceError {}

/** A grant was not stored. The caller still holds it. */
export class ReservationError extends SluiceError {}

/** The tracker is full, and none of its grants is stale. */
export class ReservationCapacityError extends ReservationError {}

/** The tracker holds a grant of the same request and bucket. */
export class ReservationTakenError extends ReservationError {}

/** An argument that cannot be used, whatever the table contains. */
export class ArgumentError extends SluiceError {}

const classes: Record<string, new (message: string) => SluiceError> = {
  AccessDeniedError,
  AcquireError,
  ArgumentError,
  ClosedError,
  ConfigError,
  ContendedError,
  CorruptRowError,
  CredentialsError,
  EndedError,
  LeaseGoneError,
  LimitError,
  LimitsError,
  NeverSatisfiableError,
  NoTableError,
  PenalizeError,
  RedeemError,
  RefillError,
  RejectedError,
  ReleaseError,
  RequestError,
  ReservationCapacityError,
  ReservationTakenError,
  SettleError,
  StoreError,
  SweepError,
  TimedOutError,
  TooLargeForInlineError,
  UnavailableError,
  UnknownDimensionError,
};

/** The error that the native module reported, as one of the classes above. */
export function toError(error: unknown): unknown {
  if (!(error instanceof Error) || !error.message.startsWith("{")) {
    return error;
  }
  const { class: name, message, retry } = JSON.parse(error.message) as Failure;
  if (name === "RefusedError" && retry) {
    return new RefusedError(message, { granted: false, ...retry });
  }
  return new (classes[name] ?? SluiceError)(message);
}

interface Failure {
  class: string;
  message: string;
  retry?: Omit<RetryIn, "granted">;
}
