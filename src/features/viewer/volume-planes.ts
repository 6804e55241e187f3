/**
 * Planes across the slices of a result's image, coronal and sagittal ones of axial slices. The
 * volume is read whole, once, and stays in memory while its planes are looked at; a stack that is
 * not straight, whole and even has none.
 */
import { errors, type RadserveError } from "../../base/errors.js";
import type { ProcessMemory } from "../../base/process-memory.js";
import type { Plane } from "../../engine/types.js";
import { volumeOf } from "../../images/dicom/volume.js";
import type { Attributes, Image, Volume } from "../../images/image.js";
import { sidesOf } from "../../results/findings/edges.js";
import { displayed, planeOf } from "../../results/picture/draw-result.js";
import { reslice, whyNoSections } from "../../results/picture/reslice.js";
import { sectionsAt, type Section } from "../../results/picture/section.js";
import type { Receipt } from "../../results/receipt/receipt.js";
import { changed, requireImage } from "../../results/receipt/unchanged.js";
import { factsOf } from "./frame-values.js";
import type { Across, FrameFacts } from "./messages.js";

/**
 * With a volume that is looked at, images may take this part of the memory together: others find
 * room beside it.
 */
export const KEPT_SHARE = 0.25;

/** A volume that is looked at: its slices as they are displayed, in their order. */
export interface KnownVolume {
  volume: Volume;
  planes: readonly Plane[];
  attributes: Attributes | undefined;
}

export class VolumePlanes {
  #last: { key: string; known: KnownVolume; giveBack: () => void } | undefined;

  constructor(private readonly memory: ProcessMemory) {}

  /**
   * The volume of a receipt.
   * @param path the real one of the image: who may not read it is not shown what another has read
   * @param open reads the image, which is of use until the work is done
   * @throws RadserveError result_changed; series_invalid where its slices are no straight and whole
   * volume; overloaded; what reading throws
   */
  async known(
    path: string,
    { source }: Receipt,
    open: <T>(use: (image: Image) => Promise<T>) => Promise<T>,
  ): Promise<KnownVolume> {
    const key = `${source.file_sha256} ${source.series_instance_uid ?? ""} ${path}`;
    if (this.#last?.key === key) return this.#last.known;
    this.#last?.giveBack();
    this.#last = undefined;
    this.#last = await open(async (image) => ({ key, ...(await this.#read(image, source)) }));
    return this.#last.known;
  }

  async #read(image: Image, source: Receipt["source"]) {
    const found = image.series?.slices ?? [];
    const named = source.slices ?? [];
    const isOther = found.some(({ fileSha256 }, i) => fileSha256 !== named[i]?.file_sha256);
    if (isOther || found.length !== named.length)
      throw changed(
        "the folder to hold the slices that the receipt names, and no others of the series.",
      );
    if (image.series === undefined) await requireImage(image, source);
    const volume = volumeOf(image);
    const why = whyNoSections(volume, image.format);
    if (why !== undefined)
      throw errors.series_invalid(`Expected a volume of grey values; there are ${why}.`);
    const { rows, columns, bitsAllocated } = image.format;
    const bytes = (volume.frames.length * rows * columns * bitsAllocated) / 8;
    const giveBack = this.memory.keepIfRoom("images", bytes, KEPT_SHARE);
    if (giveBack === undefined) throw noRoom(bytes);
    try {
      const planes: Plane[] = [];
      for (const frame of volume.frames)
        planes.push(displayed(planeOf(image, frame, await image.frame(frame))));
      return { known: { volume, planes, attributes: image.attributes }, giveBack };
    } catch (error) {
      giveBack();
      throw error;
    }
  }
}

export function noRoom(bytes: number): RadserveError {
  return errors.overloaded(
    `Expected room for ${Math.ceil(bytes / 2 ** 20)} MiB in memory, for the planes of the volume; there is less beside other images. Look at its slices, or again shortly.`,
  );
}

/** @param at the row or column, from 1 */
export function sectionAt(
  { volume, planes }: KnownVolume,
  index: NonNullable<Across>,
  at: number,
): Section {
  const { rows = 0, columns = 0 } = planes[0]?.format ?? {};
  const most = index === "row" ? rows : columns;
  if (at > most) throw errors.bad_request(`Expected a ${index} from 1 to ${most}; found ${at}.`);
  const section = sectionsAt(volume, { rows, columns }, { row: at - 1, column: at - 1 }).find(
    ({ fixed }) => fixed.index === index,
  );
  if (section === undefined) throw new Error("There is a section along each index");
  return section;
}

/** The stored values of a section, in the window of the middle slice. */
export function sectionPlane({ volume, planes }: KnownVolume, section: Section): Plane {
  return reslice({ volume, planes, outputs: [] }, planes.length >> 1, section).plane;
}

export function sectionFacts(known: KnownVolume, section: Section): FrameFacts {
  const { across, down } = section;
  const side = ({ along, reversed }: typeof across) => ({ along, reversed });
  return factsOf(sectionPlane(known, section), known.attributes, {
    spacing: [down.spacing, across.spacing],
    sides: sidesOf(section.plane, known.attributes) ?? null,
    position: section.plane.position,
    instance_number: null,
    across: { name: section.name, right: side(across), down: side(down) },
  });
}
