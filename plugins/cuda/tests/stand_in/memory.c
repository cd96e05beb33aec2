/* Memory of the fake device, and page-locked memory. It is full of ones when it comes and when it goes: what reads
   memory that nobody wrote, or that was freed, sees numbers that are none. */
#include "fake.h"
#include <stdlib.h>
#include <string.h>

struct block {
    address from;
    size_t bytes;
    int pinned, use;
    struct block *next;
};

static struct block *blocks;
static int use; /* what was left from uses before does not count */

void new_use(void) { use++; }

static struct block **find(address from, size_t bytes, int pinned) {
    for (struct block **at = &blocks; *at; at = &(*at)->next)
        if ((*at)->pinned == pinned && from >= (*at)->from && from + bytes <= (*at)->from + (*at)->bytes) return at;
    return NULL;
}

int on_device(address from, size_t bytes) { return find(from, bytes, 0) != NULL; }

int touches_device(address from, size_t bytes) {
    for (struct block *block = blocks; block; block = block->next)
        if (!block->pinned && from < block->from + block->bytes && block->from < from + bytes) return 1;
    return 0;
}

size_t live_bytes(void) {
    size_t sum = 0;
    for (struct block *block = blocks; block; block = block->next)
        if (!block->pinned && block->use == use) sum += block->bytes;
    return sum;
}

static int allocate(const char *name, address *made, size_t bytes, int pinned) {
    int error = enter(name, bytes, 1);
    if (!error) error = allowed();
    if (!error && bytes == 0) error = INVALID_VALUE;
    if (!error && !pinned && live_bytes() + bytes > limit()) error = OUT_OF_MEMORY;
    void *memory = NULL;
    if (!error && posix_memalign(&memory, 4096, bytes)) error = OUT_OF_MEMORY;
    if (error) return done(error);
    memset(memory, 0xFF, bytes);
    struct block *block = malloc(sizeof *block);
    *block = (struct block){(address)(uintptr_t)memory, bytes, pinned, use, blocks};
    blocks = block;
    *made = block->from;
    return done(SUCCESS);
}

static int give_back(const char *name, address from, int pinned) {
    int error = enter(name, 0, 1);
    if (!error) error = allowed();
    struct block **at = error ? NULL : find(from, 0, pinned);
    if (!error && (!at || (*at)->from != from)) error = INVALID_VALUE;
    if (error) return done(error);
    run_everything(); /* as a real driver waits for what may still use it */
    at = find(from, 0, pinned);
    struct block *block = *at;
    *at = block->next;
    memset((void *)(uintptr_t)block->from, 0xFF, block->bytes);
    free((void *)(uintptr_t)block->from);
    free(block);
    return done(broken());
}

int cuMemAlloc_v2(address *made, size_t bytes) { return allocate("cuMemAlloc", made, bytes, 0); }
int cuMemFree_v2(address from) { return give_back("cuMemFree", from, 0); }

int cuMemAllocHost_v2(void **made, size_t bytes) {
    address from = 0;
    int error = allocate("cuMemAllocHost", &from, bytes, 1);
    *made = (void *)(uintptr_t)from;
    return error;
}

int cuMemFreeHost(void *from) { return give_back("cuMemFreeHost", (address)(uintptr_t)from, 1); }

int cuMemGetInfo_v2(size_t *available, size_t *total) {
    int error = enter("cuMemGetInfo", 0, 1);
    size_t live = live_bytes();
    *total = limit();
    *available = live < *total ? *total - live : 0;
    return done(error);
}

/* Memory of the device is told to lie on the host, as it does: so libraries' code for the CPU takes it. */
int cuPointerGetAttribute(void *data, int which, address from) {
    int error = enter("cuPointerGetAttribute", 0, 0);
    if (!error && (which != 2 || !find(from, 1, 0))) error = INVALID_VALUE;
    if (!error) *(unsigned *)data = 1;
    return done(error);
}
