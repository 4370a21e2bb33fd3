#include "textflag.h"

// func copyEachAVX512(to, from *[]byte, n int)
//
// Up to 128 bytes are two moves under masks, whatever their number, so that no branch depends on it. Where pieces go is asked for before: it lies anywhere in the
// memory, and a core waits for many lines of it at once as long as for one. To read there would cost more than the wait: memory that is new is then first mapped to
// a page of zeros, which the write that follows has to copy, and all cores to forget.
TEXT ·copyEachAVX512(SB), NOSPLIT, $0-24
	MOVQ  to+0(FP), R8
	MOVQ  from+8(FP), R9
	MOVQ  n+16(FP), R10
	MOVQ  $-1, R11
	XORL  R12, R12
	TESTQ R10, R10
	JZ    done
	MOVQ  R8, DX
	MOVQ  R10, BX

ask:
	MOVQ (DX), DI
	BYTE $0x0F; BYTE $0x0D; BYTE $0x0F // PREFETCHW (DI)
	ADDQ $24, DX
	DECQ BX
	JNZ  ask

next:
	MOVQ (R8), DI
	MOVQ (R9), SI
	MOVQ 8(R9), CX
	CMPQ CX, $128
	JHI  long

last:
	BZHIQ      CX, R11, AX // all bits from 64 on
	SUBQ       $64, CX
	CMOVQLT    R12, CX
	BZHIQ      CX, R11, BX
	KMOVQ      AX, K1
	KMOVQ      BX, K2
	VMOVDQU8.Z (SI), K1, Z0
	VMOVDQU8.Z 64(SI), K2, Z1
	VMOVDQU8   Z0, K1, (DI)
	VMOVDQU8   Z1, K2, 64(DI)
	ADDQ       $24, R8
	ADDQ       $24, R9
	DECQ       R10
	JNZ        next

done:
	VZEROUPPER
	RET

long:
	VMOVDQU64 (SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 Z0, (DI)
	VMOVDQU64 Z1, 64(DI)
	ADDQ      $128, SI
	ADDQ      $128, DI
	SUBQ      $128, CX
	CMPQ      CX, $128
	JHI       long
	JMP       last

DATA bytes64<>+0(SB)/8, $0x0706050403020100
DATA bytes64<>+8(SB)/8, $0x0f0e0d0c0b0a0908
DATA bytes64<>+16(SB)/8, $0x1716151413121110
DATA bytes64<>+24(SB)/8, $0x1f1e1d1c1b1a1918
DATA bytes64<>+32(SB)/8, $0x2726252423222120
DATA bytes64<>+40(SB)/8, $0x2f2e2d2c2b2a2928
DATA bytes64<>+48(SB)/8, $0x3736353433323130
DATA bytes64<>+56(SB)/8, $0x3f3e3d3c3b3a3938
GLOBL bytes64<>(SB), RODATA|NOPTR, $64

// func copyTwiceVBMI(a, b, from *byte, n int)
//
// What is read are the whole lines in which there are bytes of the piece. A load under a mask that reaches into the next line has to wait for that one
// too, which nobody has asked for. And what is stored is not masked: a core takes long for that.
TEXT ·copyTwiceVBMI(SB), NOSPLIT, $0-32
	MOVQ         a+0(FP), DI
	MOVQ         b+8(FP), R8
	MOVQ         from+16(FP), SI
	MOVQ         n+24(FP), CX
	MOVL         SI, AX
	ANDL         $63, AX
	SUBQ         AX, SI              // the first line
	VPBROADCASTB AX, Z3
	VPADDB       bytes64<>(SB), Z3, Z3 // where in two lines the piece is
	ADDQ         AX, CX              // where it ends
	LEAQ         64(SI), BX
	CMPQ         CX, $64
	CMOVQLS      SI, BX
	VMOVDQA64    (SI), Z0
	VMOVDQA64    (BX), Z1
	VMOVDQA64    Z3, Z4
	VPERMI2B     Z1, Z0, Z4
	VMOVDQU64    Z4, (DI)
	VMOVDQU64    Z4, (R8)
	CMPQ         n+24(FP), $64
	JGT          more
	VZEROUPPER
	RET

more:
	LEAQ      128(SI), BX
	ADDQ      $64, SI
	CMPQ      CX, $128
	CMOVQLS   SI, BX
	VMOVDQA64 (BX), Z2
	VPERMI2B  Z2, Z1, Z3
	VMOVDQU64 Z3, 64(DI)
	VMOVDQU64 Z3, 64(R8)
	VZEROUPPER
	RET
