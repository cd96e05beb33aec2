/* A libnvidia-ml.so.1 for tests: clock and reasons by FAKE_NVML_MHZ and FAKE_NVML_REASONS (nvml.h's bits). */
#include <stdlib.h>
#include <string.h>

static int gpu;

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    *device = &gpu;
    return strcmp(bus, "0000:65:00.0") ? 6 : 0;
}

int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz) {
    const char *value = getenv("FAKE_NVML_MHZ");
    *mhz = value ? (unsigned)strtoul(value, NULL, 0) : 1980;
    return device == &gpu && which == 1 ? 0 : 2;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons) {
    const char *value = getenv("FAKE_NVML_REASONS");
    *reasons = value ? strtoull(value, NULL, 0) : 0;
    return device == &gpu ? 0 : 2;
}
