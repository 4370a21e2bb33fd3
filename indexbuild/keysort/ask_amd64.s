#include "textflag.h"

// func askPrefetch(p *byte, off int)
TEXT ·askPrefetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	ADDQ off+8(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET
