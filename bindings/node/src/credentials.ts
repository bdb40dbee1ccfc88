import type { CredentialsQuestion } from "./native.js";

/** Credentials of AWS, as the AWS SDK for JavaScript has them (`AwsCredentialIdentity`). */
export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
  /** When they end. A provider is asked again ten seconds before; without an end, every five minutes. */
  readonly expiration?: Date | undefined;
}

/** What a client of the AWS SDK takes as its `credentials`, such as `fromNodeProviderChain()`. */
export type AwsCredentialsSource = AwsCredentials | (() => AwsCredentials | Promise<AwsCredentials>);

/** Answers the native module's questions for credentials. */
export function asking(source: AwsCredentialsSource): (question: CredentialsQuestion) => void {
  return async (question) => {
    try {
      const { accessKeyId, secretAccessKey, sessionToken, expiration } =
        typeof source === "function" ? await source() : source;
      const expiresMs = expiration?.getTime();
      question.answer(JSON.stringify({ accessKeyId, secretAccessKey, sessionToken, expiresMs }));
    } catch (error) {
      question.fail(error instanceof Error ? error.message : String(error));
    }
  };
}
