#include "textflag.h"

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
