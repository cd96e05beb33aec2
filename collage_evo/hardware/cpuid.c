/* Hides instruction sets from libraries that ask the processor itself, as ONNX Runtime's MLAS does.
 *
 * Linux can make CPUID fault in user mode (arch_prctl, ARCH_SET_CPUID). The handler runs the instruction, clears bits
 * of leaf 7 and goes on behind it. Threads and forks inherit this; exec ends it. Other libraries (tvm_ffi, faulthandler)
 * install handlers for SIGSEGV too: sigaction and signal of the C library jump to functions of this file, which call
 * such a handler for all other faults. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define SA_RESTORER 0x04000000

struct kernel_action { /* as the kernel's rt_sigaction has it */
    void *handler;
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

static uint32_t hidden[2][4]; /* [subleaf][eax, ebx, ecx, edx] of leaf 7 */
static struct sigaction others; /* what else there is for SIGSEGV */
static volatile int passed; /* whether a fault was passed on to it: from then on everything is as without this file */

__attribute__((naked)) static void restorer(void) { __asm__("mov $15, %rax\n syscall"); } /* rt_sigreturn */

static int act(int number, const struct sigaction *wanted, struct sigaction *old) {
    struct kernel_action in = {0}, out = {0};
    if (wanted) {
        in.handler = (void *)wanted->sa_sigaction;
        in.flags = (unsigned long)wanted->sa_flags | SA_RESTORER;
        in.restorer = restorer;
        memcpy(&in.mask, &wanted->sa_mask, sizeof in.mask);
    }
    long failed = syscall(SYS_rt_sigaction, number, wanted ? &in : NULL, old ? &out : NULL, sizeof in.mask);
    if (!failed && old) {
        memset(old, 0, sizeof *old);
        old->sa_sigaction = (void (*)(int, siginfo_t *, void *))out.handler;
        old->sa_flags = (int)(out.flags & ~(unsigned long)SA_RESTORER);
        memcpy(&old->sa_mask, &out.mask, sizeof out.mask);
    }
    return (int)failed;
}

static int sigaction_here(int number, const struct sigaction *wanted, struct sigaction *old) {
    if (number != SIGSEGV || passed) return act(number, wanted, old);
    struct sigaction was = others;
    if (wanted) others = *wanted;
    if (old) *old = was;
    return 0;
}

static sighandler_t signal_here(int number, sighandler_t handler) {
    struct sigaction wanted = {.sa_flags = SA_RESTART}, old;
    wanted.sa_handler = handler;
    return sigaction_here(number, &wanted, &old) ? SIG_ERR : old.sa_handler;
}

static void on_fault(int number, siginfo_t *info, void *raw) {
    greg_t *registers = ((ucontext_t *)raw)->uc_mcontext.gregs;
    const uint8_t *at = (const uint8_t *)registers[REG_RIP];
    (void)number;
    /* The kernel says SI_KERNEL for a fault of an instruction; the page of any other fault may not be readable. */
    if (info->si_code != SI_KERNEL || at[0] != 0x0f || at[1] != 0xa2) {
        passed = 1;
        act(SIGSEGV, &others, NULL); /* the fault comes again, for whoever else there is */
        if (info->si_code <= 0) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGSEGV); /* unless it was sent */
        return;
    }
    uint32_t leaf = (uint32_t)registers[REG_RAX], sub = (uint32_t)registers[REG_RCX], found[4];
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
    __asm__ volatile("cpuid" : "=a"(found[0]), "=b"(found[1]), "=c"(found[2]), "=d"(found[3]) : "a"(leaf), "c"(sub));
    syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
    if (leaf == 7 && sub < 2)
        for (int place = 0; place < 4; ++place) found[place] &= ~hidden[sub][place];
    registers[REG_RAX] = found[0];
    registers[REG_RBX] = found[1];
    registers[REG_RCX] = found[2];
    registers[REG_RDX] = found[3];
    registers[REG_RIP] += 2;
}

static int redirect(const char *name, void *to) { /* mov rax, to; jmp rax */
    uint8_t code[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    uint8_t *from = dlsym(RTLD_DEFAULT, name);
    if (!from) return -1;
    uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE), page = (uintptr_t)from & ~(size - 1);
    if (mprotect((void *)page, 2 * size, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
    memcpy(code + 2, &to, sizeof to);
    memcpy(from, code, sizeof code);
    return mprotect((void *)page, 2 * size, PROT_READ | PROT_EXEC);
}

/* Hides the bits from this thread and those that it starts from now on. Gives 0, or -1 where CPUID cannot fault. */
int hide(const uint32_t *bits) {
    static int handled = 0;
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    for (int place = 0; place < 8; ++place) hidden[place / 4][place % 4] = bits[place];
    if (!handled) {
        if (act(SIGSEGV, &action, &others)) return -1;
        if (redirect("sigaction", (void *)sigaction_here) || redirect("signal", (void *)signal_here)) return -1;
        handled = 1;
    }
    return (int)syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
}
