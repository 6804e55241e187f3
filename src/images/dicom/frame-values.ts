/** Where an object says something of a frame, whichever functional group has it. */
import { ownValue } from "../../base/own-value.js";
import type { Attributes } from "../image.js";

/** The functional groups that hold an attribute (PS3.3 C.7.6.16, C.8.13, C.8.15, C.8.22). */
const MACROS: Readonly<Record<string, readonly string[]>> = {
  EchoTime: ["MRTimingAndRelatedParametersSequence"],
  PixelSpacing: ["PixelMeasuresSequence"],
  SpacingBetweenSlices: ["PixelMeasuresSequence"],
  FrameType: ["CTImageFrameTypeSequence", "MRImageFrameTypeSequence", "PETFrameTypeSequence"],
  VolumeBasedCalculationTechnique: [
    "CTImageFrameTypeSequence",
    "MRImageFrameTypeSequence",
    "PETFrameTypeSequence",
  ],
  ComplexImageComponent: ["MRImageFrameTypeSequence"],
  EffectiveEchoTime: ["MREchoSequence"],
  FlipAngle: ["MRTimingAndRelatedParametersSequence"],
  RepetitionTime: ["MRTimingAndRelatedParametersSequence"],
  DiffusionBValue: ["MRDiffusionSequence"],
  DiffusionDirectionality: ["MRDiffusionSequence"],
  DiffusionGradientDirectionSequence: ["MRDiffusionSequence"],
  ConvolutionKernel: ["CTReconstructionSequence"],
  ReconstructionDiameter: ["CTReconstructionSequence"],
  KVP: ["CTXRayDetailsSequence"],
  SliceThickness: ["PixelMeasuresSequence"],
  ContrastBolusAgentPhase: ["ContrastBolusUsageSequence"],
  TemporalPositionIndex: ["FrameContentSequence"],
  FrameAcquisitionNumber: ["FrameContentSequence"],
  StackID: ["FrameContentSequence"],
  FrameAcquisitionDateTime: ["FrameContentSequence"],
  NominalPercentageOfCardiacPhase: ["CardiacSynchronizationSequence"],
  NominalCardiacTriggerDelayTime: ["CardiacSynchronizationSequence"],
  NominalPercentageOfRespiratoryPhase: ["RespiratorySynchronizationSequence"],
  DerivationDescription: ["DerivationImageSequence"],
  DerivationCodeSequence: ["DerivationImageSequence"],
};

/** The names of the functional groups that hold an attribute; none for one of other places. */
export const macrosOf = (keyword: string): readonly string[] => ownValue(MACROS, keyword) ?? [];

const shared = new WeakMap<Attributes, Map<string, readonly Attributes[]>>();

/** What all frames share, which is looked at for each: it has one item (PS3.3 C.7.6.16). */
function sharedHolders(attributes: Attributes, keyword: string): readonly Attributes[] {
  const known = shared.get(attributes) ?? new Map<string, readonly Attributes[]>();
  shared.set(attributes, known);
  const [item] = attributes.sequence("SharedFunctionalGroupsSequence") ?? [];
  const found =
    known.get(keyword) ??
    macrosOf(keyword)
      .flatMap((macro) => item?.sequence(macro) ?? [])
      .filter((holder) => holder.has(keyword));
  known.set(keyword, found);
  return found;
}

/**
 * The top of the data set and the functional groups that hold an attribute.
 * @param frame from 0; of all frames if it is absent
 */
export function valuesIn(
  attributes: Attributes,
  keyword: string,
  frame: number | undefined,
): Attributes[] {
  const all = attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  const own = (frame === undefined ? all : all.slice(frame, frame + 1))
    .flatMap((group) => macrosOf(keyword).flatMap((macro) => group.sequence(macro) ?? []))
    .filter((holder) => holder.has(keyword));
  const top = attributes.has(keyword) ? [attributes] : [];
  return [...top, ...sharedHolders(attributes, keyword), ...own];
}
