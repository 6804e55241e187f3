/**
 * A series of which several peers bring objects, as a modality and a PACS. Where one of them has
 * brought what another lacks, the other's is a part, however quietly it came.
 */
import { mayBeOnePatient, studyOf } from "./patients.js";
import type { SeriesReader } from "./looked.js";
import type { Reception } from "./reception.js";
import type { SeriesPlace } from "./spool.js";

export class OtherPeers {
  constructor(
    private readonly reader: Pick<SeriesReader, "placesOf" | "objects" | "fileOf">,
    private readonly reception: Pick<Reception, "isBeside" | "noteBeside">,
  ) {}

  /**
   * Notes of series of a study whether another peer has objects that are missing here.
   * @returns the same series of other peers that lack some of these, and of which that is not noted
   */
  async compare(study: string, series: readonly SeriesPlace[]): Promise<SeriesPlace[]> {
    if (series.length === 0) return [];
    const all = await this.reader.placesOf(studyOf(study));
    const lacking: SeriesPlace[] = [];
    for (const place of series) {
      const others = all.filter((one) => one.series === place.series && one.peer !== place.peer);
      lacking.push(...(await this.#compared(place, others)));
    }
    return lacking;
  }

  async #compared(place: SeriesPlace, others: readonly SeriesPlace[]): Promise<SeriesPlace[]> {
    const lacking: SeriesPlace[] = [];
    let isLacking = false;
    const own = await this.reader.objects(place);
    for (const other of others) {
      const theirs = await this.reader.objects(other);
      const [here, there] = [new Set(own), new Set(theirs)];
      const isMissing = theirs.some((name) => !here.has(name));
      const theyLack = own.some((name) => !there.has(name));
      const [mine = "", first] = [own[0], theirs[0]];
      if (first === undefined || !(isMissing || theyLack)) continue;
      const files = [this.reader.fileOf(place, mine), this.reader.fileOf(other, first)] as const;
      if (!(await mayBeOnePatient(...files))) continue;
      isLacking ||= isMissing;
      if (theyLack && !(await this.reception.isBeside(other))) lacking.push(other);
    }
    await this.reception.noteBeside(place, isLacking);
    return lacking;
  }
}
