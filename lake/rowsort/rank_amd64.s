#include "textflag.h"

DATA evens<>+0(SB)/8, $0
DATA evens<>+8(SB)/8, $2
DATA evens<>+16(SB)/8, $4
DATA evens<>+24(SB)/8, $6
DATA evens<>+32(SB)/8, $8
DATA evens<>+40(SB)/8, $10
DATA evens<>+48(SB)/8, $12
DATA evens<>+56(SB)/8, $14
GLOBL evens<>(SB), RODATA|NOPTR, $64

// func rankAVX512(rows *rowRef, n int, ranks *uint64)
//
// The rank of a row is the number of rows before it that are not above it plus the number of rows
// after it that are below it. Eight rows at a time are compared with all rows, without branches on
// their caches.
TEXT ·rankAVX512(SB), NOSPLIT, $0-24
	MOVQ       rows+0(FP), SI
	MOVQ       n+8(FP), DX
	MOVQ       ranks+16(FP), DI
	VMOVDQU64  evens<>(SB), Z5
	VPTERNLOGQ $0xff, Z6, Z6, Z6 // -1
	MOVQ       $-1, R11
	XORL       R12, R12
	MOVQ       SI, R9            // the first of eight rows
	MOVQ       DX, R10           // rows from there on
	MOVQ       DX, R14
	SHLQ       $4, R14
	ADDQ       SI, R14           // the end

eight:
	// The last rows may be fewer than eight: K1 and K2 select two quadwords of each.
	MOVQ        R10, AX
	ADDQ        AX, AX
	BZHIQ       AX, R11, BX
	SUBQ        $8, AX
	CMOVQLT     R12, AX
	BZHIQ       AX, R11, CX
	KMOVB       BX, K1
	KMOVB       CX, K2
	VMOVDQU64.Z (R9), K1, Z0
	VMOVDQU64.Z 64(R9), K2, Z1
	VMOVDQA64   Z5, Z2
	VPERMI2Q    Z1, Z0, Z2      // caches
	VPXORQ      Z3, Z3, Z3      // ranks so far
	MOVQ        SI, R8
	CMPQ        R8, R9
	JAE         among

before:
	VPCMPUQ.BCST $5, (R8), Z2, K3 // the eight: not below that row
	VPSUBQ       Z6, Z3, K3, Z3
	ADDQ         $16, R8
	CMPQ         R8, R9
	JB           before

among:
	MOVQ $0xfe, R13              // those of the eight that are after the row
	LEAQ 128(R9), AX
	CMPQ AX, R14
	CMOVQHI R14, AX

one:
	VPCMPUQ.BCST $6, (R8), Z2, K3 // above that row
	VPCMPUQ.BCST $0, (R8), Z2, K4 // equal
	KMOVB        R13, K5
	KANDB        K5, K4, K4
	KORB         K4, K3, K3
	VPSUBQ       Z6, Z3, K3, Z3
	ADDQ         R13, R13
	ADDQ         $16, R8
	CMPQ         R8, AX
	JB           one
	CMPQ         R8, R14
	JAE          ranked

after:
	VPCMPUQ.BCST $6, (R8), Z2, K3 // above that row
	VPSUBQ       Z6, Z3, K3, Z3
	ADDQ         $16, R8
	CMPQ         R8, R14
	JB           after

ranked:
	VMOVDQU64 Z3, (DI)
	ADDQ      $64, DI
	ADDQ      $128, R9
	SUBQ      $8, R10
	JG        eight
	VZEROUPPER
	RET
