#include "textflag.h"

// Prefetch instructions have no effect on results and never fault, whatever the address.

// func secondLevelLines(p *byte, n int)
TEXT ·secondLevelLines(SB), NOSPLIT, $0-16
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

// func twoLines(p *byte, off int)
TEXT ·twoLines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	ADDQ off+8(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	RET

// PREFETCHW (AX), which the assembler lacks.
#define PREFETCHW_AX BYTE $0x0F; BYTE $0x0D; BYTE $0x08

// func linesForWriting(p unsafe.Pointer, n int)
TEXT ·linesForWriting(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX

line:
	PREFETCHW_AX
	ADDQ $64, AX
	SUBQ $64, CX
	JGT  line
	RET
