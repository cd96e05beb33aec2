// Generated code names it; all that it uses is in kernel.h.
