/** Where an object says something of a frame, whichever functional group has it. */
import type { Attributes } from "../image.js";

/** The functional groups that hold an attribute (PS3.3 C.7.6.16, C.8.13, C.8.15, C.8.22). */
const MACROS: Readonly<Record<string, readonly string[]>> = {
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

/**
 * The top of the data set and the functional groups that hold an attribute.
 * @param frame from 0; of all frames if it is absent
 */
export function valuesIn(
  attributes: Attributes,
  keyword: string,
  frame: number | undefined,
): Attributes[] {
  const macros = MACROS[keyword] ?? [];
  const own = attributes.sequence("PerFrameFunctionalGroupsSequence") ?? [];
  const groups = [
    // One item (PS3.3 C.7.6.16), which is looked at for each frame
    ...(attributes.sequence("SharedFunctionalGroupsSequence") ?? []).slice(0, 1),
    ...(frame === undefined ? own : own.slice(frame, frame + 1)),
  ];
  const items = groups.flatMap((group) => macros.flatMap((macro) => group.sequence(macro) ?? []));
  return [attributes, ...items].filter((holder) => holder.has(keyword));
}
