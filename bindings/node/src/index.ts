export {
  type Abortable,
  type AcquireOptions,
  type AdmitOptions,
  Client,
  type Dimensions,
  type SlotOptions,
} from "./client.js";
export type { AwsCredentials, AwsCredentialsSource } from "./credentials.js";
export * from "./errors.js";
export { type FetchOptions, limitedFetch } from "./fetch.js";
export { Grant } from "./grant.js";
export { type LineLogger, type Logger, type LogLevel, type LogRecord, setLogger } from "./logs.js";
export { Ops } from "./ops.js";
export type { HeadersLike, Reply } from "./reply.js";
export { Slot } from "./slot.js";
export {
  type EstimatorOptions,
  type ReservationOptions,
  ReservationTracker,
  TokenEstimator,
  type Tracked,
} from "./tracker.js";
export type * from "./values.js";
