// Generated code names it; what it uses of it is in kernel.h.
