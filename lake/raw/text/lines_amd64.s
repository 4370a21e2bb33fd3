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

// func marksVectors(s *byte, n int) (low, schemes int)
TEXT ·marksVectors(SB), NOSPLIT, $0-32
	MOVQ         s+0(FP), SI
	MOVQ         n+8(FP), DX
	MOVL         $' ', AX
	VPBROADCASTB AX, Z1
	MOVL         $':', AX
	VPBROADCASTB AX, Z2
	MOVL         $'/', AX
	VPBROADCASTB AX, Z3
	XORL         AX, AX        // low
	XORL         BX, BX        // schemes
	XORL         CX, CX        // 1 if the vector before ends in a colon

vector:
	TESTQ      DX, DX
	JLE        done
	MOVL       $64, R9
	CMPQ       DX, R9
	CMOVQLT    DX, R9
	MOVQ       $-1, R8
	BZHIQ      R9, R8, R8
	KMOVQ      R8, K1
	VMOVDQU8.Z (SI), K1, Z0
	VPCMPUB    $2, Z1, Z0, K1, K2 // up to a space
	VPCMPEQB   Z2, Z0, K3
	VPCMPEQB   Z3, Z0, K4
	KMOVQ      K2, R8
	KMOVQ      K3, R9
	KMOVQ      K4, R10
	POPCNTQ    R8, R8
	ADDQ       R8, AX
	LEAQ       (CX)(R9*2), R11
	ANDQ       R10, R11
	POPCNTQ    R11, R11
	ADDQ       R11, BX
	SHRQ       $63, R9
	MOVQ       R9, CX
	ADDQ       $64, SI
	SUBQ       $64, DX
	JMP        vector

done:
	VZEROUPPER
	MOVQ AX, low+16(FP)
	MOVQ BX, schemes+24(FP)
	RET
