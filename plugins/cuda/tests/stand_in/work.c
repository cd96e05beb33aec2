/* What can be enqueued, and events. */
#include "fake.h"
#include <stdlib.h>

static int add(const char *name, struct op what, void *stream) {
    int error = enter(name, what.bytes, 1);
    return done(error ? error : enqueue(stream, what));
}

int cuMemcpyHtoDAsync_v2(address target, const void *source, size_t bytes, void *stream) {
    struct op what = {.kind = COPY_IN, .target = target, .source = (address)(uintptr_t)source, .bytes = bytes};
    return add("cuMemcpyHtoDAsync", what, stream);
}

int cuMemcpyDtoHAsync_v2(void *target, address source, size_t bytes, void *stream) {
    struct op what = {.kind = COPY_OUT, .target = (address)(uintptr_t)target, .source = source, .bytes = bytes};
    return add("cuMemcpyDtoHAsync", what, stream);
}

int cuMemcpyDtoDAsync_v2(address target, address source, size_t bytes, void *stream) {
    struct op what = {.kind = COPY, .target = target, .source = source, .bytes = bytes};
    return add("cuMemcpyDtoDAsync", what, stream);
}

int cuMemsetD8Async(address target, unsigned char value, size_t bytes, void *stream) {
    return add("cuMemsetD8Async", (struct op){.kind = FILL, .target = target, .value = value, .bytes = bytes}, stream);
}

int cuLaunchHostFunc(void *stream, host_function function, void *data) {
    return add("cuLaunchHostFunc", (struct op){.kind = HOST, .function = function, .data = data}, stream);
}

int cuEventCreate(void **made, unsigned flags) {
    (void)flags;
    int error = enter("cuEventCreate", 0, 1);
    if (!error) *made = calloc(1, sizeof(struct event));
    return done(error);
}

int cuEventRecord(void *handle, void *stream) {
    int error = enter("cuEventRecord", 0, 1);
    struct event *event = handle;
    if (!error) {
        *event = (struct event){-1, 1, captures_here()};
        error = enqueue(stream, (struct op){.kind = RECORD, .event = event});
    }
    return done(error);
}

int cuEventSynchronize(void *handle) {
    int error = enter("cuEventSynchronize", 0, 1);
    if (!error && ((struct event *)handle)->captured) {
        invalidate_own();
        error = CAPTURED_EVENT;
    }
    if (!error) error = allowed();
    if (error) return done(error);
    run_everything();
    return done(broken());
}

int cuEventElapsedTime(float *ms, void *first, void *last) {
    int error = enter("cuEventElapsedTime", 0, 1);
    struct event *from = first, *to = last;
    if (!error && (!from->recorded || !to->recorded || from->captured || to->captured)) error = INVALID_HANDLE;
    if (!error && (from->ms < 0 || to->ms < 0)) error = NOT_READY;
    if (!error) *ms = (float)(to->ms - from->ms);
    return done(error);
}

int cuEventDestroy_v2(void *handle) {
    int error = enter("cuEventDestroy", 0, 0);
    if (!error) {
        run_everything(); /* which may still record it */
        free(handle);
    }
    return done(error);
}
