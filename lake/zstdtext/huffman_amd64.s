#include "go_asm.h"
#include "textflag.h"

// FOUR appends the codes of four literals, and moves whole bytes out.
#define FOUR(at) \
	SHLXQ BX, at(SP), AX  \
	ORQ   AX, R8          \
	ADDL  (128+at)(SP), BX \
	MOVQ  R8, (DI)        \
	MOVL  BX, CX          \
	MOVL  BX, DX          \
	SHRL  $3, CX          \
	ANDL  $0x38, DX       \
	ADDQ  CX, DI          \
	SHRXQ DX, R8, R8      \
	ANDL  $7, BX

// HALF joins the codes of four literals each of half of the 64, of which c has the codes and l the lengths as words.
#define HALF(c, l) \
	VPSRLD      $16, l, Z8   \
	VPSLLVW     Z8, Z31, Z8  \
	VPMADDWD    Z8, c, c     \
	VPMADDWD    Z31, l, l    \
	VPSRLQ      $32, l, Z8   \
	VPADDD      Z8, l, l     \
	VMOVDQA32.Z c, K1, Z9    \
	VPSLLVQ     Z8, Z9, Z9   \
	VPSRLQ      $32, c, c    \
	VPORQ       c, Z9, c

// func encodeAVX512(codes *splitCodes, dst, lits *byte, n int) (at int, acc uint64, have uint)
TEXT ·encodeAVX512(SB), NOSPLIT, $256-56
	MOVQ codes+0(FP), AX
	MOVQ dst+8(FP), DI
	MOVQ lits+16(FP), R9
	MOVQ n+24(FP), SI
	ADDQ R9, SI
	VMOVDQU8 (splitCodes_lengths)(AX), Z16
	VMOVDQU8 (splitCodes_lengths+64)(AX), Z17
	VMOVDQU8 (splitCodes_low)(AX), Z18
	VMOVDQU8 (splitCodes_low+64)(AX), Z19
	VMOVDQU8 (splitCodes_high)(AX), Z20
	VMOVDQU8 (splitCodes_high+64)(AX), Z21
	MOVL     $1, AX
	VPBROADCASTW AX, Z31
	MOVL     $0x5555, AX
	KMOVW    AX, K1
	VPXORQ   Z30, Z30, Z30
	XORL     R8, R8                  // bits that are not out yet
	XORL     BX, BX                  // how many

next:
	SUBQ $64, SI
	VMOVDQU8  (SI), Z1
	VMOVDQA64 Z1, Z2
	VMOVDQA64 Z1, Z3
	VPERMI2B  Z17, Z16, Z1
	VPERMI2B  Z19, Z18, Z2
	VPERMI2B  Z21, Z20, Z3
	VPUNPCKLBW Z3, Z2, Z4
	VPUNPCKHBW Z3, Z2, Z5
	VPUNPCKLBW Z30, Z1, Z6
	VPUNPCKHBW Z30, Z1, Z7
	HALF(Z4, Z6)
	HALF(Z5, Z7)
	VMOVDQU64 Z4, (SP)
	VMOVDQU64 Z5, 64(SP)
	VMOVDQU64 Z6, 128(SP)
	VMOVDQU64 Z7, 192(SP)

	// The last ones first. Of 16 literals each half has eight.
	FOUR(120)
	FOUR(112)
	FOUR(56)
	FOUR(48)
	FOUR(104)
	FOUR(96)
	FOUR(40)
	FOUR(32)
	FOUR(88)
	FOUR(80)
	FOUR(24)
	FOUR(16)
	FOUR(72)
	FOUR(64)
	FOUR(8)
	FOUR(0)
	CMPQ SI, R9
	JHI  next

	SUBQ dst+8(FP), DI
	MOVQ DI, at+32(FP)
	MOVQ R8, acc+40(FP)
	MOVQ BX, have+48(FP)
	VZEROUPPER
	RET
