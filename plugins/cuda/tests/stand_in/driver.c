/* What every call goes through: the trace, the rules, errors by name; and what the fake device says of itself. */
#define _GNU_SOURCE
#include "fake.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int initialised, sticky;
static __thread int has_context, in_host_function;
static __thread const char *called;
static __thread size_t called_bytes;
static __thread const char *outer; /* while a host function runs: the call that runs it */
static __thread size_t outer_bytes;
static char *trace;
static size_t trace_used, trace_room;
static int context; /* its address is the handle */

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

int lazy(void) {
    const char *value = setting("FAKE_CUDA_LAZY");
    return value && strcmp(value, "0") != 0;
}

size_t limit(void) {
    const char *value = setting("FAKE_CUDA_BYTES");
    return value ? strtoull(value, NULL, 10) : (size_t)4 << 30;
}

void broke(int error) {
    if (!sticky) sticky = error;
}

int broken(void) { return sticky; }

void host_begin(void) {
    in_host_function = 1;
    outer = called;
    outer_bytes = called_bytes;
}

void host_end(void) {
    in_host_function = 0;
    called = outer;
    called_bytes = outer_bytes;
}

int enter(const char *name, size_t bytes, int needs_context) {
    pthread_mutex_lock(&mutex);
    called = name;
    called_bytes = bytes;
    if (in_host_function) return NOT_PERMITTED;
    if (!initialised) return NOT_INITIALIZED;
    if (sticky) return sticky;
    return needs_context && !has_context ? INVALID_CONTEXT : SUCCESS;
}

int done(int error) {
    char line[256];
    int used = snprintf(line, sizeof line, "%s %zu %d\n", called, called_bytes, error);
    if (trace_used + (size_t)used + 1 > trace_room) {
        trace_room = 2 * trace_room + 4096;
        trace = realloc(trace, trace_room);
    }
    memcpy(trace + trace_used, line, (size_t)used + 1);
    trace_used += (size_t)used;
    const char *path = setting("FAKE_CUDA_TRACE");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fputs(line, file);
        fclose(file);
    }
    pthread_mutex_unlock(&mutex);
    return error;
}

int allowed(void) {
    if (!captures_here()) return SUCCESS;
    invalidate_own();
    return CAPTURE_UNSUPPORTED;
}

/* For tests: all calls since the last time, a line each: name, bytes, error. */
const char *fake_cuda_trace(void) { return trace ? trace : ""; }

void fake_cuda_reset(void) {
    trace_used = 0;
    if (trace) *trace = 0;
    sticky = 0;
    new_use();
}

size_t fake_cuda_live(void) { return live_bytes(); }

int cuInit(unsigned flags) {
    (void)flags;
    initialised = 1;
    const char *devices = setting("FAKE_CUDA_DEVICES");
    int error = enter("cuInit", 0, 0);
    return done(error ? error : devices && atoi(devices) == 0 ? NO_DEVICE : SUCCESS);
}

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}

int cuDeviceGetCount(int *count) {
    int error = enter("cuDeviceGetCount", 0, 0);
    const char *devices = setting("FAKE_CUDA_DEVICES");
    *count = devices ? atoi(devices) : 1;
    return done(error);
}

int cuDeviceGet(int *device, int ordinal) {
    int error = enter("cuDeviceGet", 0, 0);
    *device = ordinal;
    return done(error ? error : ordinal ? INVALID_DEVICE : SUCCESS);
}

int cuDeviceGetName(char *name, int size, int device) {
    int error = enter("cuDeviceGetName", 0, 0);
    snprintf(name, (size_t)size, "Fake GPU");
    return done(error ? error : device ? INVALID_DEVICE : SUCCESS);
}

int cuDeviceGetAttribute(int *value, int which, int device) {
    int error = enter("cuDeviceGetAttribute", 0, 0), major = 9, minor = 0;
    const char *capability = setting("FAKE_CUDA_CAPABILITY");
    if (capability) sscanf(capability, "%d.%d", &major, &minor);
    const char *mode = setting("FAKE_CUDA_COMPUTE_MODE");
    *value = which == 75 ? major : which == 76 ? minor : mode ? atoi(mode) : 0;
    int known = which == 75 || which == 76 || which == 20;
    return done(error ? error : device ? INVALID_DEVICE : known ? SUCCESS : INVALID_VALUE);
}

int cuDeviceGetPCIBusId(char *text, int size, int device) {
    int error = enter("cuDeviceGetPCIBusId", 0, 0);
    snprintf(text, (size_t)size, "0000:65:00.0");
    return done(error ? error : device ? INVALID_DEVICE : SUCCESS);
}

int cuDevicePrimaryCtxRetain(void **made, int device) {
    int error = enter("cuDevicePrimaryCtxRetain", 0, 0);
    *made = &context;
    return done(error ? error : device ? INVALID_DEVICE : SUCCESS);
}

int cuCtxSetCurrent(void *wanted) {
    int error = enter("cuCtxSetCurrent", 0, 0);
    if (!error && wanted && wanted != &context) error = INVALID_CONTEXT;
    if (!error) has_context = wanted != NULL;
    return done(error);
}

static const struct { int code; const char *name, *text; } ERRORS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

static int told(int code, const char **text, int as_name) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) {
            *text = as_name ? ERRORS[i].name : ERRORS[i].text;
            return SUCCESS;
        }
    *text = NULL;
    return INVALID_VALUE;
}

int cuGetErrorName(int code, const char **text) { return told(code, text, 1); }
int cuGetErrorString(int code, const char **text) { return told(code, text, 0); }
