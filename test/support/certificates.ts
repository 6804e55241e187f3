/** Certificates for tests, made by the program openssl. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";

const EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

function openssl(...args: string[]): void {
  execFileSync("openssl", args, { stdio: ["ignore", "ignore", "pipe"] });
}

export interface Pair {
  /** Files in PEM. */
  cert: string;
  key: string;
  /** The same, for node's clients. */
  pem: { cert: Buffer; key: Buffer };
}

/** An authority of its own. */
export class TestCa {
  readonly folder = mkdtempSync(path.join(os.tmpdir(), "radserve-ca-"));
  readonly file = path.join(this.folder, "ca.crt");
  readonly #key = path.join(this.folder, "ca.key");
  #count = 0;

  /** @param days how long it is valid */
  constructor(name = "Test CA", days = 90) {
    openssl(
      "req",
      "-x509",
      ...EC,
      "-keyout",
      this.#key,
      "-out",
      this.file,
      "-days",
      String(days),
      "-subj",
      `/CN=${name}`,
    );
  }

  get pem(): Buffer {
    return readFileSync(this.file);
  }

  /**
   * A certificate for localhost and 127.0.0.1, or for a client.
   * @param days how long it is valid; less than 0: it has expired
   */
  issue(name = "localhost", days = 60): Pair {
    const base = path.join(this.folder, String((this.#count += 1)));
    const [key, request, cert] = [`${base}.key`, `${base}.csr`, `${base}.crt`];
    const names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    openssl(
      "req",
      ...EC,
      "-keyout",
      key,
      "-out",
      request,
      "-subj",
      `/CN=${name}`,
      "-addext",
      names,
    );
    const by = ["-CA", this.file, "-CAkey", this.#key, "-copy_extensions", "copy"];
    openssl("x509", "-req", "-in", request, ...by, "-days", String(days), "-out", cert);
    return { cert, key, pem: { cert: readFileSync(cert), key: readFileSync(key) } };
  }
}
