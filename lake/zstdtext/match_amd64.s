#include "go_asm.h"
#include "textflag.h"

// Shuffles of the 16 bytes from the first of eight positions on, which are in both halves of a
// register: words selects the four bytes from each position on, rests the two bytes after those.
DATA words<>+0(SB)/8, $0x0403020103020100
DATA words<>+8(SB)/8, $0x0605040305040302
DATA words<>+16(SB)/8, $0x0807060507060504
DATA words<>+24(SB)/8, $0x0a09080709080706
GLOBL words<>(SB), RODATA|NOPTR, $32

DATA rests<>+0(SB)/8, $0x8080060580800504
DATA rests<>+8(SB)/8, $0x8080080780800706
DATA rests<>+16(SB)/8, $0x80800a0980800908
DATA rests<>+24(SB)/8, $0x80800c0b80800b0a
GLOBL rests<>(SB), RODATA|NOPTR, $32

// lanes has the number of each lane, before that of the preceding one, cyclically.
DATA lanes<>+0(SB)/8, $0x0000000100000000
DATA lanes<>+8(SB)/8, $0x0000000300000002
DATA lanes<>+16(SB)/8, $0x0000000500000004
DATA lanes<>+24(SB)/8, $0x0000000700000006
GLOBL lanes<>(SB), RODATA|NOPTR, $32

DATA before<>+0(SB)/8, $0x0000000000000007
DATA before<>+8(SB)/8, $0x0000000200000001
DATA before<>+16(SB)/8, $0x0000000400000003
DATA before<>+24(SB)/8, $0x0000000600000005
GLOBL before<>(SB), RODATA|NOPTR, $32

DATA prime1<>+0(SB)/8, $0x9e3779b19e3779b1
DATA prime1<>+8(SB)/8, $0x9e3779b19e3779b1
DATA prime1<>+16(SB)/8, $0x9e3779b19e3779b1
DATA prime1<>+24(SB)/8, $0x9e3779b19e3779b1
GLOBL prime1<>(SB), RODATA|NOPTR, $32

DATA prime2<>+0(SB)/8, $0x85ebca7785ebca77
DATA prime2<>+8(SB)/8, $0x85ebca7785ebca77
DATA prime2<>+16(SB)/8, $0x85ebca7785ebca77
DATA prime2<>+24(SB)/8, $0x85ebca7785ebca77
GLOBL prime2<>(SB), RODATA|NOPTR, $32

DATA tags<>+0(SB)/8, $0x00007fe000007fe0
DATA tags<>+8(SB)/8, $0x00007fe000007fe0
DATA tags<>+16(SB)/8, $0x00007fe000007fe0
DATA tags<>+24(SB)/8, $0x00007fe000007fe0
GLOBL tags<>(SB), RODATA|NOPTR, $32

DATA checks<>+0(SB)/8, $0x00007fff00007fff
DATA checks<>+8(SB)/8, $0x00007fff00007fff
DATA checks<>+16(SB)/8, $0x00007fff00007fff
DATA checks<>+24(SB)/8, $0x00007fff00007fff
GLOBL checks<>(SB), RODATA|NOPTR, $32

// Steps of eight positions, as in a table entry, and of eight ranks.
DATA eightPos<>+0(SB)/8, $0x0004000000040000
DATA eightPos<>+8(SB)/8, $0x0004000000040000
DATA eightPos<>+16(SB)/8, $0x0004000000040000
DATA eightPos<>+24(SB)/8, $0x0004000000040000
GLOBL eightPos<>(SB), RODATA|NOPTR, $32

DATA eight<>+0(SB)/8, $0x0000000800000008
DATA eight<>+8(SB)/8, $0x0000000800000008
DATA eight<>+16(SB)/8, $0x0000000800000008
DATA eight<>+24(SB)/8, $0x0000000800000008
GLOBL eight<>(SB), RODATA|NOPTR, $32

// EXCHANGE stores the four dwords of entries in the table at R8, one after the other, at the
// indexes in slots, and sets old to the entries that were there. Where two indexes are equal, the
// second finds the first's entry. It changes AX, BX and tmp.
#define EXCHANGE(slots, entries, tmp, old) \
	VMOVQ   slots, AX                   \
	VMOVQ   entries, tmp                \
	MOVL    AX, BX                      \
	SHRQ    $32, AX                     \
	VMOVD   (R8)(BX*4), old             \
	MOVL    tmp, (R8)(BX*4)             \
	SHRQ    $32, tmp                    \
	VPINSRD $1, (R8)(AX*4), old, old    \
	MOVL    tmp, (R8)(AX*4)             \
	VPEXTRQ $1, slots, AX               \
	VPEXTRQ $1, entries, tmp            \
	MOVL    AX, BX                      \
	SHRQ    $32, AX                     \
	VPINSRD $2, (R8)(BX*4), old, old    \
	MOVL    tmp, (R8)(BX*4)             \
	SHRQ    $32, tmp                    \
	VPINSRD $3, (R8)(AX*4), old, old    \
	MOVL    tmp, (R8)(AX*4)

// func scanAVX2(text *byte, n int, pos uint32, table, candidates, last *uint32, lanes *[256]uint64)
// int
TEXT ·scanAVX2(SB), NOSPLIT, $0-64
	MOVQ text+0(FP), SI
	MOVQ n+8(FP), DX
	MOVL pos+16(FP), AX
	MOVQ table+24(FP), R8
	MOVQ candidates+32(FP), DI
	MOVQ last+40(FP), R10
	MOVQ lanes+48(FP), R11

	VMOVDQU      lanes<>(SB), Y14     // ranks
	VPSLLD       $15, Y14, Y15
	VMOVD        AX, X0
	VPBROADCASTD X0, Y0
	VPADDD       Y0, Y15, Y15         // positions and epoch
	VMOVD        (R10), X7            // the preceding distance
	VMOVDQU      before<>(SB), Y13
	VMOVDQU      words<>(SB), Y12
	VMOVDQU      rests<>(SB), Y11
	VMOVDQU      prime1<>(SB), Y10
	VMOVDQU      prime2<>(SB), Y9
	VMOVDQU      checks<>(SB), Y8
	VPXOR        Y6, Y6, Y6

eight:
	VBROADCASTI128 (SI), Y0
	VPSHUFB  Y12, Y0, Y1
	VPSHUFB  Y11, Y0, Y0
	VPMULLD  Y10, Y1, Y1
	VPMULLD  Y9, Y0, Y0
	VPADDD   Y0, Y1, Y0
	VPSRLD   $16, Y0, Y2           // indexes in the table
	VPAND    tags<>(SB), Y0, Y0
	VPOR     Y15, Y0, Y0           // entries
	VPADDD   eightPos<>(SB), Y15, Y15

	// Exchange the entries; Y3 is what was in the table.
	VEXTRACTI128 $1, Y2, X5
	VEXTRACTI128 $1, Y0, X1
	EXCHANGE(X2, X0, CX, X3)
	EXCHANGE(X5, X1, CX, X4)
	VINSERTI128 $1, X4, Y3, Y3

	VPSUBD    Y3, Y0, Y0
	VPAND     Y8, Y0, Y1
	VPCMPEQD  Y6, Y1, Y1
	VPAND     Y1, Y0, Y0           // distances, 0 where none is known
	VPERMD    Y0, Y13, Y1
	VPBLENDD  $1, Y7, Y1, Y2       // the preceding distances
	VMOVDQA   Y1, Y7
	VPCMPEQD  Y2, Y0, Y2
	VPCMPEQD  Y6, Y0, Y3
	VPOR      Y2, Y3, Y3
	VMOVMSKPS Y3, AX
	XORL      $0xff, AX            // a bit for each candidate
	VPADDD    Y14, Y0, Y0
	VPADDD    eight<>(SB), Y14, Y14
	VPMOVZXBD (R11)(AX*8), Y1
	VPERMD    Y0, Y1, Y0
	VMOVDQU   Y0, (DI)
	POPCNTL   AX, AX
	LEAQ      (DI)(AX*4), DI

	ADDQ $8, SI
	SUBQ $8, DX
	JGT  eight

	VMOVD X7, (R10)
	SUBQ  candidates+32(FP), DI
	SHRQ  $2, DI
	MOVQ  DI, ret+56(FP)
	VZEROUPPER
	RET

// func chooseAVX2(text *byte, at int, candidates *uint32, n, limit int, matches *match, c *choice)
// int
TEXT ·chooseAVX2(SB), NOSPLIT, $8-64
	MOVQ candidates+16(FP), R9
	MOVQ n+24(FP), AX
	LEAQ (R9)(AX*4), AX
	MOVQ AX, end-8(SP)
	MOVQ c+48(FP), AX
	MOVQ choice_last(AX), DI
	LEAQ (DI)(DI*2), DI
	MOVQ matches+40(FP), DX
	LEAQ (DX)(DI*4), DI                // the last match
	MOVQ choice_prevEnd(AX), R11
	MOVQ choice_lastStart(AX), R12
	MOVQ choice_lastEnd(AX), R13
	MOVQ choice_lastGain(AX), R14

candidate:
	CMPQ R9, end-8(SP)
	JGE  done
	MOVL (R9), AX
	MOVL AX, BX
	ANDL $const_rankMask, BX
	ADDQ at+8(FP), BX                  // p
	MOVL AX, CX
	SHRL $15, CX
	MOVQ BX, DX
	SUBQ CX, DX                        // p - distance
	CMPQ DX, $8
	JLT  done
	CMPQ BX, limit+32(FP)
	JGT  done
	MOVQ text+0(FP), SI
	VMOVDQU  (SI)(DX*1), Y0
	VPCMPEQB (SI)(BX*1), Y0, Y0
	MOVQ -8(SI)(DX*1), R15
	XORQ -8(SI)(BX*1), R15
	JZ   done                          // eight equal bytes before it
	VPMOVMSKB Y0, R8
	NOTL R8
	TZCNTL R8, R8
	JCS  done                          // 32 equal bytes
	BSRL CX, AX                        // bits of the distance, less one
	LEAQ (BX)(R8*1), DX                // end
	BSWAPQ R15
	TZCNTQ R15, R15
	ANDL $0x38, R15
	SHLQ $3, BX
	SUBQ R15, BX                       // from; from here on in units of cost
	LEAQ (DX*8), R8                    // end
	LEAQ -(const_sequenceCost+1)(R8), R10
	SUBQ AX, R10

	// SI is where the match begins if the last one stays, AX where if it is replaced. The chain of
	// operations that depends on the preceding match is kept short.
	MOVQ R13, SI
	CMPQ BX, R13
	CMOVQGT BX, SI
	MOVQ R11, AX
	CMPQ BX, R11
	CMOVQGT BX, AX
	LEAQ match__size(DI), R15      // where it is written
	XORL CX, CX                        // the gain to exceed
	CMPQ BX, R12
	CMOVQLE AX, SI
	CMOVQLE R14, CX
	CMOVQLE DI, R15
	MOVQ R13, AX
	CMOVQLE R11, AX                    // the new prevEnd
	SUBQ SI, R10                       // gain
	CMPQ R10, CX
	LEAQ match__size(DI), CX
	CMOVQGT R15, CX
	CMOVQGT AX, R11
	CMOVQGT SI, R12
	CMOVQGT R8, R13
	CMOVQGT R10, R14
	CMOVQGT R15, DI
	// A match that is not accepted is written past the last one.
	SHRQ $3, SI
	MOVL SI, match_start(CX)
	MOVL DX, match_end(CX)
	MOVL (R9), AX
	SHRL $15, AX
	MOVL AX, match_distance(CX)
	ADDQ $4, R9
	JMP  candidate

done:
	MOVQ c+48(FP), AX
	MOVQ R11, choice_prevEnd(AX)
	MOVQ R12, choice_lastStart(AX)
	MOVQ R13, choice_lastEnd(AX)
	MOVQ R14, choice_lastGain(AX)
	SUBQ matches+40(FP), DI
	SARQ $2, DI
	MOVQ $0xaaaaaaaaaaaaaaab, DX       // 1/3
	IMULQ DX, DI
	MOVQ DI, choice_last(AX)
	SUBQ candidates+16(FP), R9
	SHRQ $2, R9
	MOVQ R9, ret+56(FP)
	VZEROUPPER
	RET
