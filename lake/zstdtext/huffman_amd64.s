#include "go_asm.h"
#include "textflag.h"

// OUT appends the code at at(R10), whose length is 128 bytes behind it, to the BX bits in R8, and
// writes whole bytes to DI.
#define OUT(at) \
	SHLXQ BX, at(R10), AX    \
	ORQ   AX, R8             \
	ADDL  (128+at)(R10), BX  \
	MOVQ  R8, (DI)           \
	MOVL  BX, CX             \
	MOVL  BX, DX             \
	SHRL  $3, CX             \
	ANDL  $0x38, DX          \
	ADDQ  CX, DI             \
	SHRXQ DX, R8, R8         \
	ANDL  $7, BX

// FOUR joins the codes of four literals each in half of the 64. c has the codes and l the lengths,
// both as words.
#define FOUR(c, l) \
	VPSRLD      $16, l, Z8   \
	VPSLLVW     Z8, Z31, Z8  \
	VPMADDWD    Z8, c, c     \
	VPMADDWD    Z31, l, l    \
	VPSRLQ      $32, l, Z8   \
	VPADDD.Z    Z8, l, K1, l \
	VMOVDQA32.Z c, K1, Z9    \
	VPSLLVQ     Z8, Z9, Z9   \
	VPSRLQ      $32, c, c    \
	VPORQ       c, Z9, c

// EIGHT joins the codes of eight literals each, in every other quadword of c8 and l8.
#define EIGHT(c, l, c8, l8) \
	VPSHUFD $0x4e, l, Z8   \
	VPSHUFD $0x4e, c, Z9   \
	VPSLLVQ Z8, c, c8      \
	VPADDQ  Z8, l, l8      \
	VPORQ   Z9, c8, c8

// SPILL writes z, whose lower half is y, to be read soon in smaller pieces. Some cores forward
// stores to such loads from 32-byte stores only.
#define SPILL(z, y, at) \
	VMOVDQU       y, at(R10)        \
	VEXTRACTI64X4 $1, z, (at+32)(R10)

// func encodeAVX512(codes *splitCodes, dst, lits *byte, n int) (at int, acc uint64, have uint)
TEXT ·encodeAVX512(SB), NOSPLIT, $320-56
	MOVQ codes+0(FP), AX
	MOVQ dst+8(FP), DI
	MOVQ lits+16(FP), R9
	MOVQ n+24(FP), R11
	LEAQ (R9)(R11*1), SI
	LEAQ 63(SP), R10
	ANDQ $~63, R10                   // aligned, so that stores are forwarded to the loads
	VMOVDQU8 (AX), Z16
	VMOVDQU8 64(AX), Z17
	VMOVDQU8 256(AX), Z18
	VMOVDQU8 320(AX), Z19
	VMOVDQU8 512(AX), Z20
	VMOVDQU8 576(AX), Z21
	VMOVDQU8 128(AX), Z22
	VMOVDQU8 192(AX), Z23
	VMOVDQU8 384(AX), Z24
	VMOVDQU8 448(AX), Z25
	VMOVDQU8 640(AX), Z26
	VMOVDQU8 704(AX), Z27
	MOVL     $1, AX
	VPBROADCASTW AX, Z31
	MOVL     $56, AX                 // with seven bits left over this is less than 64
	VPBROADCASTQ AX, Z29
	MOVL     $0x5555, AX
	KMOVW    AX, K1
	VPXORQ   Z30, Z30, Z30
	KXNORQ   K2, K2, K2
	XORL     R8, R8                  // bits not written yet
	XORL     BX, BX                  // their number
	SUBQ     $64, R11
	JLT      last

next:
	SUBQ $64, SI
	VMOVDQU8.Z (SI), K2, Z1
	VPMOVB2M  Z1, K4
	VMOVDQA64 Z1, Z2
	VMOVDQA64 Z1, Z3
	VMOVDQA64 Z1, Z12
	VPERMI2B.Z Z17, Z16, K2, Z1
	VPERMI2B.Z Z19, Z18, K2, Z2
	VPERMI2B.Z Z21, Z20, K2, Z3
	KORTESTQ  K4, K4
	JNE       above

split:
	VPUNPCKLBW Z3, Z2, Z4
	VPUNPCKHBW Z3, Z2, Z5
	VPUNPCKLBW Z30, Z1, Z6
	VPUNPCKHBW Z30, Z1, Z7
	FOUR(Z4, Z6)
	FOUR(Z5, Z7)
	EIGHT(Z4, Z6, Z10, Z12)
	EIGHT(Z5, Z7, Z11, Z13)
	VPMAXUQ   Z12, Z13, Z14
	VPCMPUQ   $6, Z29, Z14, K3
	KORTESTW  K3, K3
	JNE       long
	SPILL(Z10, Y10, 0)
	SPILL(Z11, Y11, 64)
	SPILL(Z12, Y12, 128)
	SPILL(Z13, Y13, 192)

	// From the last literal to the first. Of 16 literals each half has eight.
	OUT(112)
	OUT(48)
	OUT(96)
	OUT(32)
	OUT(80)
	OUT(16)
	OUT(64)
	OUT(0)

more:
	SUBQ $64, R11
	JGE  next

last:
	ADDQ $64, R11
	JLE  done                        // no literals are left
	// The first literals, less than 64 of them.
	MOVL $64, CX
	SUBL R11, CX
	MOVQ $-1, AX
	SHLXQ CX, AX, AX
	KMOVQ AX, K2
	XORL R11, R11
	JMP  next

above: // some literals are above 127
	VMOVDQA64 Z12, Z13
	VMOVDQA64 Z12, Z14
	VPERMI2B  Z23, Z22, Z12
	VPERMI2B  Z25, Z24, Z13
	VPERMI2B  Z27, Z26, Z14
	VMOVDQU8  Z12, K4, Z1
	VMOVDQU8  Z13, K4, Z2
	VMOVDQU8  Z14, K4, Z3
	JMP  split

long: // eight codes have more than 56 bits
	SPILL(Z4, Y4, 0)
	SPILL(Z5, Y5, 64)
	SPILL(Z6, Y6, 128)
	SPILL(Z7, Y7, 192)
	OUT(120)
	OUT(112)
	OUT(56)
	OUT(48)
	OUT(104)
	OUT(96)
	OUT(40)
	OUT(32)
	OUT(88)
	OUT(80)
	OUT(24)
	OUT(16)
	OUT(72)
	OUT(64)
	OUT(8)
	OUT(0)
	JMP  more

done:
	SUBQ dst+8(FP), DI
	MOVQ DI, at+32(FP)
	MOVQ R8, acc+40(FP)
	MOVQ BX, have+48(FP)
	VZEROUPPER
	RET

// The first 16 symbols.
DATA symbols<>+0(SB)/8, $0x0706050403020100
DATA symbols<>+8(SB)/8, $0x0f0e0d0c0b0a0908
GLOBL symbols<>(SB), RODATA|NOPTR, $16

// func orderAVX512(total *[256]uint32, keys, order *symbolOrder) int
TEXT ·orderAVX512(SB), NOSPLIT, $0-32
	MOVQ total+0(FP), SI
	MOVQ keys+8(FP), R8
	MOVQ order+16(FP), R9
	MOVL $1, AX
	VPBROADCASTD AX, Z15
	MOVL $16, AX
	VPBROADCASTD AX, Z14
	VPMOVZXBD symbols<>(SB), Z13      // symbols
	VPTERNLOGD $0xff, Z12, Z12, Z12
	MOVQ R8, DI
	MOVL $16, DX

keys:
	VMOVDQU32 (SI), Z0
	VPTESTMD  Z0, Z0, K1
	VPSLLD    $8, Z0, Z0
	VPORD     Z13, Z0, Z0
	VPADDD    Z14, Z13, Z13
	VPCOMPRESSD.Z Z0, K1, Z0
	VMOVDQU32 Z0, (DI)
	KMOVW     K1, AX
	POPCNTL   AX, AX
	LEAQ      (DI)(AX*4), DI
	ADDQ $64, SI
	DECL DX
	JNE  keys
	VMOVDQU32 Z12, (DI)               // sentinels above all keys

	// A key's index in the order is how many keys are below it.
	MOVQ R8, SI

sixteen:
	VMOVDQU32 (SI), Z0
	VPXORD    Z1, Z1, Z1
	MOVQ      R8, CX

key:
	VPCMPUD.BCST $6, (CX), Z0, K1
	VPADDD       Z15, Z1, K1, Z1
	ADDQ $4, CX
	CMPQ CX, DI
	JLT  key
	KXNORW K1, K1, K1
	VPSCATTERDD Z0, K1, (R9)(Z1*4)
	ADDQ $64, SI
	CMPQ SI, DI
	JLT  sixteen
	SUBQ R8, DI
	SHRQ $2, DI
	MOVQ DI, ret+24(FP)
	VZEROUPPER
	RET

// func splitAVX512(codes *[256]uint32, split *splitCodes)
TEXT ·splitAVX512(SB), NOSPLIT, $0-16
	MOVQ codes+0(FP), SI
	MOVQ split+8(FP), DI
	MOVL $16, CX

sixteen:
	VMOVDQU32 (SI), Z0
	VPSRLD    $8, Z0, Z1
	VPSRLD    $16, Z0, Z2
	VPMOVDB   Z0, (DI)
	VPMOVDB   Z1, 256(DI)
	VPMOVDB   Z2, 512(DI)
	ADDQ $64, SI
	ADDQ $16, DI
	DECL CX
	JNE  sixteen
	VZEROUPPER
	RET
