/** The system's name of a fault (errno(3)), for example ENOENT; empty where it is none of the system's. */
export function errno(thrown: unknown): string {
  return thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : "";
}
