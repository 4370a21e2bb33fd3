#include "go_asm.h"
#include "textflag.h"

// ONES sets mask, and k, to bits ones from the lowest on, 64 at most.
#define ONES(bits, mask, k) \
	MOVQ  $-1, mask         \
	BZHIQ bits, mask, mask  \
	KMOVQ mask, k

// ASK_COUNTS is how many rows before a host's row is counted its count is asked for.
#define ASK_COUNTS 24

// ASK_PLACES is how many rows before a row is placed the place is asked for.
#define ASK_PLACES 24

#define PREFETCHW_AX BYTE $0x0F; BYTE $0x0D; BYTE $0x08

// func addVectors(dst, limit *byte, urls *urlnorm.Parsed, n int, first uint32, counts *hostCount, hosts uint32) (added int, end *byte)
//
// Two vectors are copied of every path, whatever its length: what is written behind its end the next row overwrites.
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

	// Counts are asked for before they are needed, those of the first rows here.
	MOVQ    SI, R8
	MOVL    $ASK_COUNTS, R9
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
	LEAQ ASK_COUNTS(CX), AX
	CMPQ AX, DX
	JGE  asked
	MOVL (ASK_COUNTS*40+32)(SI), AX
	ADDL R11, AX
	LEAQ (R14)(AX*8), AX
	PREFETCHW_AX

asked:
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
	ADDQ AX, (R14)(BX*8)      // a row, and its bytes above

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

// ASK_PLACE asks for the place of the row at R14 and goes on to the next, unless there is none before R8.
#define ASK_PLACE(asked) \
	CMPQ  R14, R8            \
	JCC   asked              \
	PREFETCHT0 2048(R14)     \
	PREFETCHT0 2112(R14)     \
	MOVL  (R14), BX          \
	MOVL  (R10)(BX*4), BX    \
	LEAQ  (R11)(BX*4), AX    \
	PREFETCHW_AX             \
	MOVL  4(R14), CX         \
	MOVL  CX, AX             \
	SHRL  $2, AX             \
	LEAQ  8(R14)(AX*1), R14  \
	TESTL $const_ownSuffix, CX \
	JZ    asked              \
	MOVL  (R14), CX          \
	LEAQ  4(R14)(CX*1), R14  \
asked:

// func placeRows(rows *byte, n int, place uint32, next, places *uint32)
TEXT ·placeRows(SB), NOSPLIT, $0-40
	MOVQ rows+0(FP), SI
	MOVQ n+8(FP), R8
	MOVL place+16(FP), R9
	MOVQ next+24(FP), R10
	MOVQ places+32(FP), R11
	ADDQ SI, R8
	SUBQ SI, R9                // a row's place is that of its address
	MOVQ SI, R14
	MOVL $ASK_PLACES, R13

ask:
	ASK_PLACE(asked)
	DECL R13
	JNZ  ask

row:
	ASK_PLACE(next)
	MOVL  (SI), BX             // host
	MOVL  (R10)(BX*4), DX
	LEAL  (R9)(SI*1), AX
	MOVL  AX, (R11)(DX*4)
	INCL  DX
	MOVL  DX, (R10)(BX*4)
	MOVL  4(SI), CX            // head
	MOVL  CX, AX
	SHRL  $2, AX
	LEAQ  8(SI)(AX*1), SI
	TESTL $const_ownSuffix, CX
	JNZ   tail

size:
	CMPQ SI, R8
	JCS  row
	RET

tail:
	MOVL (SI), CX
	LEAQ 4(SI)(CX*1), SI
	JMP  size
