/** Several series, or several single images, of one folder as one case. */
import { sha256 } from "../../files/durable-files.js";
import { RadserveError } from "../../base/errors.js";
import {
  checkedFrame,
  addWarnings,
  type Candidate,
  type Case,
  type Codec,
  type Image,
  type NotChosen,
  type SourceIdentity,
  type TransformStep,
  type Warning,
} from "../image.js";
import { seriesOf, type SeriesFile } from "./series.js";
import type { Unreadable } from "./unreadable.js";

/**
 * The candidates of a folder for the members of a case: every series as a volume, or every file as
 * an image of its own.
 */
export interface Candidates {
  series(): readonly Candidate[];
  images(): readonly Candidate[];
}

/** Each list is made once, so that its members can be told from each other. */
export function candidatesOf(
  files: readonly SeriesFile[],
  unreadable: readonly Unreadable[],
): Candidates {
  let [series, images]: (readonly Candidate[] | undefined)[] = [];
  return {
    series: () =>
      (series ??= seriesOf(files, unreadable).flatMap(({ series: found, image }) => {
        if (!(image instanceof RadserveError)) return [{ image }];
        const [first] = found;
        return first === undefined ? [] : [{ image: new FileImage(first), fault: image }];
      })),
    images: () => (images ??= files.map((file) => ({ image: new FileImage(file) }))),
  };
}

/** An image of one file of a folder; its pixels are read when they are asked for. */
class FileImage implements Image {
  readonly source;
  readonly format;
  readonly codec?: Codec;
  readonly frameCount: number;
  readonly attributes;
  readonly warnings: Warning[];
  readonly transforms: TransformStep[] = [];

  constructor(private readonly file: SeriesFile) {
    this.source = file.source;
    this.format = file.format;
    if (file.codec !== undefined) this.codec = file.codec;
    this.frameCount = file.frames.length;
    this.attributes = file.attributes;
    this.warnings = [...file.warnings];
  }

  async frame(index: number): Promise<Uint8Array> {
    // Kept open, the files of all members would be in memory at once
    const image = await this.file.open();
    const data = await image.frame(index);
    addWarnings(this.warnings, image.warnings);
    return data;
  }

  interpretation = (frame: number) => this.#facts(frame).interpretation;
  spacing = (frame: number) => this.#facts(frame).spacing;
  regions = (frame: number) => this.#facts(frame).regions;
  plane = (frame: number) => this.#facts(frame).plane;
  planeFault = (frame: number) => this.#facts(frame).planeFault;
  pixelAspect = (frame: number) => this.#facts(frame).pixelAspect;

  #facts(frame: number) {
    const facts = this.file.frames[checkedFrame(frame, this.frameCount)];
    if (facts === undefined) throw new RangeError("A checked index is one of a frame");
    return facts;
  }
}

/**
 * The members of a case as one image. Frames, geometry and attributes come from the first member,
 * whose grid the results have; identity, warnings and steps come from all members.
 */
export class CaseImage implements Image {
  readonly source: SourceIdentity;
  readonly format;
  readonly frameCount: number;
  readonly attributes;
  readonly transforms: TransformStep[];
  readonly case;
  readonly notChosen: readonly NotChosen[];
  readonly series?: NonNullable<Image["series"]>;
  readonly #leading: Image;
  readonly #own: Warning[];

  constructor({ members, candidates, notChosen = [] }: Case, leftOut: readonly Warning[]) {
    const [leading] = members;
    this.notChosen = notChosen;
    this.#leading = leading;
    this.#own = [...leftOut];
    this.case = { members, candidates };
    this.format = leading.format;
    this.frameCount = leading.frameCount;
    this.attributes = leading.attributes;
    this.transforms = leading.transforms;
    if (leading.series !== undefined) this.series = leading.series;
    this.source = {
      ...leading.source,
      fileSha256: sha256(members.map(({ source }) => `${source.fileSha256}\n`).join("")),
      bytes: members.reduce((sum, { source }) => sum + source.bytes, 0),
    };
  }

  /** Those of the folder, and of each member: some grow while frames are decoded. */
  get warnings(): Warning[] {
    const all = [...this.#own];
    for (const { warnings } of this.case.members) addWarnings(all, warnings);
    return all;
  }

  frame = (index: number) => this.#leading.frame(index);
  interpretation = (frame: number) => this.#leading.interpretation(frame);
  spacing = (frame: number) => this.#leading.spacing(frame);
  regions = (frame: number) => this.#leading.regions?.(frame);
  plane = (frame: number) => this.#leading.plane(frame);
  planeFault = (frame: number) => this.#leading.planeFault?.(frame);
  pixelAspect = (frame: number) => this.#leading.pixelAspect(frame);
}

/** The stored values of an image, and of a case of all its members one after the other. */
export async function* storedFrames(image: Image): AsyncGenerator<Uint8Array> {
  for (const member of image.case?.members ?? [image])
    for (let frame = 0; frame < member.frameCount; frame++) yield await member.frame(frame);
}

/** The attributes that tell a member of a case from the others of its folder. */
export interface MemberIdentity {
  series_instance_uid?: string | undefined;
  sop_instance_uid?: string | undefined;
}

/**
 * The case that a receipt tells of, in the order of its members.
 * @returns undefined if one is not there
 */
export function memberImages(
  candidates: readonly Candidate[],
  wanted: readonly MemberIdentity[],
): Image[] | undefined {
  const found = wanted.flatMap(({ series_instance_uid, sop_instance_uid }) => {
    const one = candidates.find(
      ({ image: { source }, fault }) =>
        fault === undefined &&
        source.seriesInstanceUid === series_instance_uid &&
        source.sopInstanceUid === sop_instance_uid,
    );
    return one === undefined ? [] : [one.image];
  });
  return found.length === wanted.length ? found : undefined;
}
