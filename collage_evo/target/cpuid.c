/* Hides instruction sets from libraries that ask the processor itself, as ONNX Runtime's MLAS does.
 *
 * Linux can make CPUID fault in user mode (arch_prctl, ARCH_SET_CPUID). The handler runs the instruction, clears bits
 * of leaf 7 and goes on behind it. Threads and forks inherit this; exec ends it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012

static uint32_t hidden[2][4]; /* [subleaf][eax, ebx, ecx, edx] of leaf 7 */
static struct sigaction before;

static void on_fault(int number, siginfo_t *info, void *raw) {
    greg_t *registers = ((ucontext_t *)raw)->uc_mcontext.gregs;
    const uint8_t *at = (const uint8_t *)registers[REG_RIP];
    (void)number;
    /* The kernel says SI_KERNEL for a fault of an instruction; the page of any other fault may not be readable. */
    if (info->si_code != SI_KERNEL || at[0] != 0x0f || at[1] != 0xa2) {
        sigaction(SIGSEGV, &before, NULL); /* the fault comes again, for whoever was there before */
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

/* Hides the bits from this thread and those that it starts from now on. Gives 0, or -1 where CPUID cannot fault. May be
 * called again, after somebody else took the signal over. */
int hide(const uint32_t *bits) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK}, current;
    for (int place = 0; place < 8; ++place) hidden[place / 4][place % 4] = bits[place];
    sigaction(SIGSEGV, NULL, &current);
    if (current.sa_sigaction != on_fault) sigaction(SIGSEGV, &action, &before);
    return (int)syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
}
