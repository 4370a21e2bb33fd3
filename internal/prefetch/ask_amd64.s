#include "textflag.h"

// Into the caches behind the first, which waits for sixteen lines at most.
//
// func askLines(p *byte, n int)
TEXT ·askLines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	ADDQ SI, CX
	ANDQ $-64, SI

line:
	PREFETCHT2 (SI)
	ADDQ       $64, SI
	CMPQ       SI, CX
	JB         line
	RET
