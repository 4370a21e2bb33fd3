#include "textflag.h"

// func lineEndsVectors(s *byte, n int, lineEnd byte, most int, ends *lineEndOffsets) int
//
// Lines of URLs are about as long as a vector, so a vector has no, one or two line ends, which no
// processor predicts. Two offsets are therefore written for every vector without a branch; the
// number of line ends says how many of them count.
TEXT ·lineEndsVectors(SB), NOSPLIT, $0-48
	MOVQ         s+0(FP), SI
	MOVQ         n+8(FP), DX
	VPBROADCASTB lineEnd+16(FP), Z1
	MOVQ         most+24(FP), R8
	MOVQ         ends+32(FP), DI
	XORL         AX, AX             // line ends so far
	XORL         CX, CX             // offset of the vector

vector:
	CMPQ       AX, R8
	JGE        done
	MOVQ       DX, BX
	SUBQ       CX, BX
	JLE        done
	MOVL       $64, R9
	CMPQ       BX, R9
	CMOVQGT    R9, BX
	MOVQ       $-1, R9
	BZHIQ      BX, R9, R9
	KMOVQ      R9, K1
	VMOVDQU8.Z (SI)(CX*1), K1, Z0
	VPCMPEQB   Z0, Z1, K1, K2
	KMOVQ      K2, BX
	POPCNTQ    BX, R10
	TZCNTQ     BX, R9
	ADDL       CX, R9
	MOVL       R9, (DI)(AX*4)
	BLSRQ      BX, BX
	TZCNTQ     BX, R9
	ADDL       CX, R9
	MOVL       R9, 4(DI)(AX*4)
	CMPQ       R10, $2
	JHI        many

next:
	ADDQ R10, AX
	ADDQ $64, CX
	JMP  vector

many:
	LEAQ 8(DI)(AX*4), R11

each:
	BLSRQ  BX, BX
	JZ     next
	TZCNTQ BX, R9
	ADDL   CX, R9
	MOVL   R9, (R11)
	ADDQ   $4, R11
	JMP    each

done:
	VZEROUPPER
	MOVQ AX, ret+40(FP)
	RET
