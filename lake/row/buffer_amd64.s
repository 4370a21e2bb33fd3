#include "go_asm.h"
#include "textflag.h"

// ONES sets the lowest bits of mask and k, at most 64.
#define ONES(bits, mask, k) \
	MOVQ  $-1, mask         \
	BZHIQ bits, mask, mask  \
	KMOVQ mask, k

// COUNTS_AHEAD is how many rows ahead the counts of hosts are prefetched.
#define COUNTS_AHEAD 24


// PREFETCHW (AX), which the assembler lacks.
#define PREFETCHW_AX BYTE $0x0F; BYTE $0x0D; BYTE $0x08

// func addVectors(dst, limit *byte, urls *urlnorm.Parsed, n int, first uint32, counts *hostCount,
// hosts uint32) (added int, end *byte)
//
// It copies two vectors of every path, without a branch on its length. The next row overwrites what
// is after the path's end.
TEXT ·addVectors(SB), NOSPLIT, $0-72
	MOVQ dst+0(FP), DI
	MOVQ limit+8(FP), R10
	MOVQ urls+16(FP), SI
	MOVQ n+24(FP), DX
	MOVL first+32(FP), R11
	MOVQ counts+40(FP), R14
	XORL CX, CX
	XORL R13, R13
	MOVL $64, R12

	// Prefetch the counts of the first rows.
	MOVQ    SI, R8
	MOVL    $COUNTS_AHEAD, R9
	CMPQ    DX, R9
	CMOVQLT DX, R9

first:
	MOVL 32(R8), AX
	ADDL R11, AX
	LEAQ (R14)(AX*8), AX
	PREFETCHW_AX
	ADDQ $40, R8
	DECQ R9
	JNZ  first

row:
	LEAQ COUNTS_AHEAD(CX), AX
	CMPQ AX, DX
	JGE  prefetched
	MOVL (COUNTS_AHEAD*40+32)(SI), AX
	ADDL R11, AX
	LEAQ (R14)(AX*8), AX
	PREFETCHW_AX

prefetched:
	CMPQ    DI, R10
	JHI     done
	LEAQ 1280(DI), AX
	PREFETCHW_AX
	LEAQ 1344(DI), AX
	PREFETCHW_AX
	MOVBLZX 36(SI), AX        // Kind
	TESTL   AX, AX
	JZ      done
	MOVQ    8(SI), R9
	CMPQ    R9, $const_maxVectorPath
	JHI     done
	MOVQ    (SI), R8

	MOVL 32(SI), BX           // Origin
	ADDL R11, BX
	CMPL BX, hosts+48(FP)
	JAE  done
	NEGQ AX
	LEAQ 2(AX)(R9*4), AX
	SHLQ $32, AX
	ORQ  BX, AX
	MOVQ AX, (DI)
	LEAQ 4(R9), AX
	SHLQ $32, AX
	INCQ AX
	ADDQ AX, (R14)(BX*8)      // one row; its bytes in the upper half

	MOVQ       R9, AX
	CMPQ       AX, R12
	CMOVQGT    R12, AX
	ONES(AX, BX, K1)
	VMOVDQU8.Z (R8), K1, Z0
	LEAQ       -64(R9), AX
	TESTQ      AX, AX
	CMOVQLT    R13, AX
	CMPQ       AX, R12
	CMOVQGT    R12, AX
	ONES(AX, BX, K2)
	VMOVDQU8.Z 64(R8), K2, Z1
	VMOVDQU64  Z0, 8(DI)
	VMOVDQU64  Z1, 72(DI)
	CMPQ       R9, $128
	JHI        long

next:
	LEAQ 8(DI)(R9*1), DI
	ADDQ $40, SI
	INCQ CX
	CMPQ CX, DX
	JLT  row

done:
	VZEROUPPER
	MOVQ CX, added+56(FP)
	MOVQ DI, end+64(FP)
	RET

long:
	MOVL $128, BX

more:
	MOVQ       R9, AX
	SUBQ       BX, AX
	CMPQ       AX, R12
	CMOVQGT    R12, AX
	ONES(AX, R13, K1)
	VMOVDQU8.Z (R8)(BX*1), K1, Z0
	VMOVDQU64  Z0, 8(DI)(BX*1)
	ADDQ       $64, BX
	CMPQ       BX, R9
	JLT        more
	XORL       R13, R13
	JMP        next
