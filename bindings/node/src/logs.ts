import { ArgumentError } from "./errors.js";
import { endLog, logTo } from "./native.js";

export type LogLevel = "error" | "warn" | "info" | "debug";

/** An event of the SDK. */
export interface LogRecord {
  readonly level: LogLevel;
  /** Its name, as `limit.near`. */
  readonly event: string;
  /** What happened; often empty. */
  readonly message: string;
  readonly fields: Readonly<Record<string, string>>;
  /** All of it in one line. */
  readonly line: string;
}

/** Takes each event as one line: `console`, or a logger of pino or winston. */
export type LineLogger = { readonly [level in LogLevel]: (line: string) => unknown };

/** Where events go: a logger that takes lines, or a function that takes records. */
export type Logger = LineLogger | ((record: LogRecord) => unknown);

const LEVELS: readonly LogLevel[] = ["error", "warn", "info", "debug"];

/** Sends the SDK's events of this level and above to `logger`, and no longer to another; without one, to
 * nobody, as at the start. There is one logger for all threads of a process. It does not keep the process
 * alive. If it throws, a warning of the process says so, once. */
export function setLogger(logger: Logger | null | undefined, level: LogLevel = "warn"): void {
  if (logger === undefined || logger === null) {
    endLog();
    return;
  }
  const take = taking(logger);
  let hasFailed = false;
  const failed = (error: unknown) => {
    if (!hasFailed) {
      hasFailed = true;
      process.emitWarning(
        `sluice: the logger failed: ${error instanceof Error ? error.stack : error}`,
        "SluiceWarning",
      );
    }
  };
  logTo(level, async (text) => {
    try {
      await take(JSON.parse(text, (key, value) => (key === "fields" ? Object.fromEntries(value) : value)));
    } catch (error) {
      failed(error);
    }
  });
}

function taking(logger: Logger): (record: LogRecord) => unknown {
  if (typeof logger === "function") {
    return logger;
  }
  const missing = LEVELS.find((level) => typeof logger[level] !== "function");
  if (missing !== undefined) {
    throw new ArgumentError(`the logger has no method ${missing}: it needs ${LEVELS.join(", ")}`);
  }
  return (record) => logger[record.level](record.line);
}
