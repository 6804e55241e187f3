/** What server/body.ts puts into Koa's requests. */
import "koa";

declare module "koa" {
  interface Request {
    /** The parsed body; the text of a bulk request. */
    body: unknown;
  }
}
