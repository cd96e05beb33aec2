/* A CUDA driver for tests: its device memory is the host's, its work is copies, fills and host functions.
   It keeps the rules that a real one keeps, and breaks them as loudly. What is enqueued runs at once, or, with
   FAKE_CUDA_LAZY=1, when somebody waits. Types are as in cuda.h, which tests do not need. */
#ifndef FAKE_H
#define FAKE_H
#include <stddef.h>
#include <stdint.h>

typedef uint64_t address;
typedef void (*host_function)(void *);

enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
    NOT_PERMITTED = 800, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_WRONG_THREAD = 908,
    CAPTURED_EVENT = 907
};
enum kind { COPY_IN, COPY_OUT, COPY, FILL, HOST, RECORD, LAUNCH };
enum status { NONE, ACTIVE, INVALIDATED };

struct graph;

struct event {
    double ms; /* when it was reached; negative: not yet */
    int recorded, captured;
};

struct op {
    enum kind kind;
    address target, source;
    size_t bytes;
    unsigned char value;
    host_function function;
    void *data;
    struct event *event;
    struct graph *graph;
};

struct ops {
    struct op *items;
    size_t count, room;
};

struct graph {
    struct ops ops;
    int holders; /* the graph, what was instantiated from it, and launches that have not run */
};

struct stream {
    struct ops pending, recorded;
    enum status status;
    unsigned long thread; /* that began the capture */
    struct stream *next;
};

/* driver.c: every function of the driver begins with enter() and leaves by done(). */
int enter(const char *name, size_t bytes, int needs_context);
int done(int error);
int allowed(void);              /* 0, or the error of an unsafe call in a thread that captures */
int lazy(void);
size_t limit(void);
void broke(int error);          /* the device fails from now on, as a real one does */
int broken(void);
void host_begin(void);          /* around a host function, which must not call the driver */
void host_end(void);

/* memory.c */
int on_device(address from, size_t bytes);
int touches_device(address from, size_t bytes);
size_t live_bytes(void);
void new_use(void);

/* stream.c */
void invalidate_own(void);      /* captures that this thread began */
int captures_here(void);
void run_everything(void);
void push(struct ops *to, struct op what);
int enqueue(void *stream, struct op what);
void release(struct graph *graph);
#endif
