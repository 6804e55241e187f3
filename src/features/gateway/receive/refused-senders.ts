/**
 * Senders that are refused again and again: their settings, or those of this side, are probably
 * wrong, and nobody looks at a sender's log. Whoever tries many names, or calls once, is none.
 */
import { durations } from "../../../base/durations.js";
import { groupsBy } from "../../../base/groups.js";
import type { Logger } from "../../../base/log.js";
import { monotonic } from "../../../base/monotonic.js";
import { counted } from "../../../base/table.js";
import { limitedAs } from "../../../server/client-address.js";
import type { ReceptionTrouble } from "./trouble.js";

const DICOM = "port for DICOM";

/** Why all of a sender is refused: how people read it, and where it came. */
const WHY = {
  elsewhere: { text: "with its AE title, from outside its networks", where: DICOM },
  nothing_kept: { text: "each object, or the contexts for them", where: DICOM },
  network: { text: "from outside the networks of all peers", where: DICOM },
  certificate: { text: "without a valid client certificate", where: DICOM },
  called_title: { text: "for a called AE title that is not in dicom.ae_title", where: DICOM },
  calling_title: { text: "for a calling AE title that no peer has", where: DICOM },
  roots: {
    text: "with a token that does not reach the spool, or the results of a rule",
    where: "STOW-RS",
  },
} as const;

export interface RefusedSender {
  why: keyof typeof WHY;
  /** Of the settings, where it is known who it is. */
  peer?: string | undefined;
  address?: string | undefined;
  /** AE titles as they were sent, without what is no character of them. */
  calling?: string;
  called?: string;
  /** The code of what is wrong with the certificate. */
  certificate?: string;
}

interface Seen {
  sender: RefusedSender;
  /** Refusals that are apart from one another. */
  times: number;
  countedAt: number;
}

/** So many make a sender one that is refused again and again. */
const OFTEN = 3;
/** Senders that are remembered: of all addresses, and of one. */
const MOST = 200;
const MOST_OF_ADDRESS = 10;
/** Peers that are told by name. */
const MOST_NAMED = 5;

export class RefusedSenders {
  readonly #seen = new Map<string, Seen>();

  constructor(private readonly log: Pick<Logger, "warn">) {}

  /** One more refusal. Those that come at once are one. */
  note(sender: RefusedSender): void {
    this.#forgetOld();
    const key = JSON.stringify(sender);
    const now = monotonic();
    const known = this.#seen.get(key);
    if (known === undefined) {
      if (this.#hasRoom(sender)) this.#seen.set(key, { sender, times: 1, countedAt: now });
      return;
    }
    if (now - known.countedAt < durations.refusalsApart) return;
    known.times += 1;
    known.countedAt = now;
    // Names and addresses of strangers stand in the log alone: anybody may read the conditions
    if (known.times === OFTEN) this.log.warn(sender, "a sender is refused again and again");
  }

  /** It has an association: what was wrong is mended. */
  admitted(address: string | undefined, calling: string): void {
    this.#forget(
      ({ sender }) =>
        sender.address === address &&
        address !== undefined &&
        (sender.calling === undefined || sender.calling === calling),
    );
  }

  /** An object of a peer is kept, or its token reaches what it has to. */
  mended(why: "nothing_kept" | "roots", peer: string): void {
    this.#forget(({ sender }) => sender.why === why && sender.peer === peer);
  }

  /** Other settings hold from now on. */
  clear(): void {
    this.#seen.clear();
  }

  troubles(): ReceptionTrouble[] {
    this.#forgetOld();
    const often = [...this.#seen.values()].filter(({ times }) => times >= OFTEN);
    return [...groupsBy(often, ({ sender }) => WHY[sender.why].where)].map(([where, here]) => {
      const told = [...groupsBy(here, ({ sender }) => sender.why)].map(([why, all]) => {
        const names = [...new Set(all.flatMap(({ sender }) => sender.peer ?? []))];
        const more = names.length > MOST_NAMED ? ["others"] : [];
        const who =
          names.length === 0
            ? counted(all.length, "sender")
            : [...names.slice(0, MOST_NAMED), ...more].join(", ");
        return `${who} (${WHY[why].text})`;
      });
      const message = `Refused again and again: ${told.join("; ")}.`;
      return { condition: "sender_refused", where, message };
    });
  }

  /** Makes room by forgetting who was not refused often; of one address, none of the others. */
  #hasRoom({ address = "" }: RefusedSender): boolean {
    const limited = limitedAs(address);
    const ofAddress = [...this.#seen].filter(
      ([, { sender }]) => limitedAs(sender.address ?? "") === limited,
    );
    const isFull = address !== "" && ofAddress.length >= MOST_OF_ADDRESS;
    if (!isFull && this.#seen.size < MOST) return true;
    const [once] =
      (isFull ? ofAddress : [...this.#seen]).find(([, { times }]) => times < OFTEN) ?? [];
    return once !== undefined && this.#seen.delete(once);
  }

  #forgetOld(): void {
    const now = monotonic();
    this.#forget(({ countedAt }) => now - countedAt > durations.refusalsForgotten);
  }

  #forget(is: (seen: Seen) => boolean): void {
    for (const [key, seen] of this.#seen) if (is(seen)) this.#seen.delete(key);
  }
}
