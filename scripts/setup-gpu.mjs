export const gpuIsInstalled = () => false;
export const placeGpuLibraries = () => {};
