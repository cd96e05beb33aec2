/* Streams, what is enqueued on them, captures and graphs. */
#define _GNU_SOURCE
#include "fake.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct stream *streams;

static double said_ms = -1;

/* For tests: let time pass on the clock of events, which from then on shows only what passed so, and that it moves. */
void fake_cuda_spend(double ms) { said_ms = (said_ms < 0 ? 0 : said_ms) + ms; }

static double now_ms(void) {
    struct timespec time;
    if (said_ms >= 0) return said_ms += 1e-3;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static struct stream *known(void *handle) {
    for (struct stream *stream = streams; stream; stream = stream->next)
        if (stream == handle) return stream;
    return NULL;
}

static int is_own(struct stream *stream) { return stream->status != NONE && stream->thread == pthread_self(); }

int captures_here(void) {
    for (struct stream *stream = streams; stream; stream = stream->next)
        if (is_own(stream)) return 1;
    return 0;
}

void invalidate_own(void) {
    for (struct stream *stream = streams; stream; stream = stream->next)
        if (is_own(stream)) stream->status = INVALIDATED;
}

void push(struct ops *to, struct op what) {
    if (to->count == to->room) {
        to->room = 2 * to->room + 16;
        to->items = realloc(to->items, to->room * sizeof *to->items);
    }
    to->items[to->count++] = what;
}

static void forget(struct ops *ops) {
    free(ops->items);
    *ops = (struct ops){0};
}

void release(struct graph *graph) {
    if (--graph->holders) return;
    forget(&graph->ops);
    free(graph);
}

static int lies_right(const struct op *op) {
    switch (op->kind) {
    case COPY_IN: return on_device(op->target, op->bytes) && !touches_device(op->source, op->bytes);
    case COPY_OUT: return on_device(op->source, op->bytes) && !touches_device(op->target, op->bytes);
    case COPY: return on_device(op->target, op->bytes) && on_device(op->source, op->bytes);
    case FILL: return on_device(op->target, op->bytes);
    default: return 1;
    }
}

static void run(struct op *op);

static void run_graph(struct ops *ops) {
    for (size_t i = 0; i < ops->count; i++) run(&ops->items[i]);
}

static void run(struct op *op) {
    if (broken()) return;
    if (!lies_right(op)) {
        broke(ILLEGAL_ADDRESS);
        return;
    }
    switch (op->kind) {
    case COPY_IN:
    case COPY_OUT:
    case COPY: memmove((void *)(uintptr_t)op->target, (void *)(uintptr_t)op->source, op->bytes); break;
    case FILL: memset((void *)(uintptr_t)op->target, op->value, op->bytes); break;
    case HOST:
        host_begin();
        op->function(op->data);
        host_end();
        break;
    case RECORD: op->event->ms = now_ms(); break;
    case LAUNCH: run_graph(&op->graph->ops); break;
    }
}

static void run_pending(struct stream *stream) {
    struct ops pending = stream->pending;
    stream->pending = (struct ops){0};
    for (size_t i = 0; i < pending.count; i++) {
        run(&pending.items[i]);
        if (pending.items[i].kind == LAUNCH) release(pending.items[i].graph);
    }
    free(pending.items);
}

void run_everything(void) {
    for (struct stream *stream = streams; stream; stream = stream->next) run_pending(stream);
}

/* Called between enter() and done(). */
int enqueue(void *handle, struct op what) {
    struct stream *stream = known(handle);
    if (!stream) return INVALID_HANDLE;
    if (stream->status == INVALIDATED) return CAPTURE_INVALIDATED;
    if (!lies_right(&what)) return INVALID_VALUE;
    if (stream->status == ACTIVE && what.kind == LAUNCH) {
        stream->status = INVALIDATED;
        return CAPTURE_UNSUPPORTED;
    }
    if (what.kind == LAUNCH) what.graph->holders++;
    push(stream->status == ACTIVE ? &stream->recorded : &stream->pending, what);
    if (stream->status == NONE && !lazy()) run_pending(stream);
    return broken();
}

int cuStreamCreate(void **made, unsigned flags) {
    (void)flags;
    int error = enter("cuStreamCreate", 0, 1);
    if (error) return done(error);
    struct stream *stream = calloc(1, sizeof *stream);
    stream->next = streams;
    *made = streams = stream;
    return done(SUCCESS);
}

int cuStreamDestroy_v2(void *handle) {
    int error = enter("cuStreamDestroy", 0, 1);
    if (!error && !known(handle)) error = INVALID_HANDLE;
    if (error) return done(error);
    struct stream *stream = handle;
    run_pending(stream);
    for (struct stream **at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    forget(&stream->recorded);
    free(stream);
    return done(broken());
}

int cuStreamSynchronize(void *handle) {
    int error = enter("cuStreamSynchronize", 0, 1);
    struct stream *stream = known(handle);
    if (!error && !stream) error = INVALID_HANDLE;
    if (!error && stream->status != NONE) {
        stream->status = INVALIDATED;
        error = CAPTURE_UNSUPPORTED;
    }
    if (!error) error = allowed();
    if (error) return done(error);
    run_pending(stream);
    return done(broken());
}

int cuCtxSynchronize(void) {
    int error = enter("cuCtxSynchronize", 0, 1);
    for (struct stream *stream = streams; !error && stream; stream = stream->next)
        if (stream->status != NONE) {
            stream->status = INVALIDATED;
            error = CAPTURE_UNSUPPORTED;
        }
    if (error) return done(error);
    run_everything();
    return done(broken());
}

int cuStreamBeginCapture_v2(void *handle, int mode) {
    (void)mode; /* every capture is taken as one of its thread */
    int error = enter("cuStreamBeginCapture", 0, 1);
    struct stream *stream = known(handle);
    if (!error && !stream) error = INVALID_HANDLE;
    if (!error && stream->status != NONE) error = ILLEGAL_STATE;
    if (error) return done(error);
    stream->status = ACTIVE;
    stream->thread = pthread_self();
    forget(&stream->recorded);
    return done(SUCCESS);
}

int cuStreamEndCapture(void *handle, void **made) {
    int error = enter("cuStreamEndCapture", 0, 1);
    struct stream *stream = known(handle);
    *made = NULL;
    if (!error && !stream) error = INVALID_HANDLE;
    if (!error && stream->status == NONE) error = ILLEGAL_STATE;
    if (!error && stream->thread != pthread_self()) error = CAPTURE_WRONG_THREAD;
    if (error) return done(error);
    struct ops recorded = stream->recorded;
    int valid = stream->status == ACTIVE;
    stream->status = NONE;
    stream->recorded = (struct ops){0};
    if (!valid) {
        forget(&recorded);
        return done(CAPTURE_INVALIDATED);
    }
    struct graph *graph = calloc(1, sizeof *graph);
    *graph = (struct graph){recorded, 1};
    *made = graph;
    return done(SUCCESS);
}

int cuGraphInstantiateWithFlags(void **made, void *handle, unsigned long long flags) {
    (void)flags;
    int error = enter("cuGraphInstantiateWithFlags", 0, 1);
    if (error) return done(error);
    ((struct graph *)handle)->holders++;
    *made = handle;
    return done(SUCCESS);
}

int cuGraphDestroy(void *handle) {
    int error = enter("cuGraphDestroy", 0, 0);
    if (!error) release(handle);
    return done(error);
}

int cuGraphExecDestroy(void *handle) {
    int error = enter("cuGraphExecDestroy", 0, 0);
    if (!error) error = allowed();
    if (!error) release(handle);
    return done(error);
}

int cuGraphLaunch(void *handle, void *stream) {
    int error = enter("cuGraphLaunch", 0, 1);
    return done(error ? error : enqueue(stream, (struct op){.kind = LAUNCH, .graph = handle}));
}
