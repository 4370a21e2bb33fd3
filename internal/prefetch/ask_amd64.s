#include "textflag.h"

// askLines prefetches into the second-level cache: the first level handles only about 16 misses at a
// time. Prefetches never fault, whatever the address.
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
