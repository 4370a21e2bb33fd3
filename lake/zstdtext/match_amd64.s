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

// The shuffles for 16 positions and the 32 bytes from the first one on. The upper halves of rests16
// are masked where it is used.
DATA words16<>+0(SB)/8, $0x0403020103020100
DATA words16<>+8(SB)/8, $0x0605040305040302
DATA words16<>+16(SB)/8, $0x0807060507060504
DATA words16<>+24(SB)/8, $0x0a09080709080706
DATA words16<>+32(SB)/8, $0x0c0b0a090b0a0908
DATA words16<>+40(SB)/8, $0x0e0d0c0b0d0c0b0a
DATA words16<>+48(SB)/8, $0x100f0e0d0f0e0d0c
DATA words16<>+56(SB)/8, $0x1211100f11100f0e
GLOBL words16<>(SB), RODATA|NOPTR, $64

DATA rests16<>+0(SB)/8, $0x0605060505040504
DATA rests16<>+8(SB)/8, $0x0807080707060706
DATA rests16<>+16(SB)/8, $0x0a090a0909080908
DATA rests16<>+24(SB)/8, $0x0c0b0c0b0b0a0b0a
DATA rests16<>+32(SB)/8, $0x0e0d0e0d0d0c0d0c
DATA rests16<>+40(SB)/8, $0x100f100f0f0e0f0e
DATA rests16<>+48(SB)/8, $0x1211121111101110
DATA rests16<>+56(SB)/8, $0x1413141313121312
GLOBL rests16<>(SB), RODATA|NOPTR, $64

// The numbers of 16 lanes.
DATA lanes16<>+0(SB)/8, $0x0000000100000000
DATA lanes16<>+8(SB)/8, $0x0000000300000002
DATA lanes16<>+16(SB)/8, $0x0000000500000004
DATA lanes16<>+24(SB)/8, $0x0000000700000006
DATA lanes16<>+32(SB)/8, $0x0000000900000008
DATA lanes16<>+40(SB)/8, $0x0000000b0000000a
DATA lanes16<>+48(SB)/8, $0x0000000d0000000c
DATA lanes16<>+56(SB)/8, $0x0000000f0000000e
GLOBL lanes16<>(SB), RODATA|NOPTR, $64

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

// GAIN_BASE is added to gains to keep them positive.
#define GAIN_BASE 0x40000000

// Offsets of the rows of measures.
#define BEGINS    0
#define ENDS      (4*const_candidateCapacity)
#define GAINS     (8*const_candidateCapacity)
#define DISTANCES (12*const_candidateCapacity)

// func measureAVX512(text *byte, candidates *uint32, n, at, limit int, m *measures)
//
// Differences around each position and its source are found one by one, what follows from them for
// 16 candidates at a time.
TEXT ·measureAVX512(SB), NOSPLIT, $0-48
	MOVQ candidates+8(FP), R9
	MOVQ n+16(FP), R10
	MOVQ m+40(FP), R8
	VPBROADCASTD at+24(FP), Z10
	VPBROADCASTD limit+32(FP), Z11
	MOVL $const_rankMask, AX
	VPBROADCASTD AX, Z12
	MOVL $(GAIN_BASE-const_sequenceCost-32), AX
	VPBROADCASTD AX, Z13
	MOVL $31, AX
	VPBROADCASTD AX, Z14
	MOVL $const_measureSpan, AX
	VPBROADCASTD AX, Z15
	VPXORD Z16, Z16, Z16

	MOVQ R9, SI
	MOVQ R8, DI
	MOVQ R10, DX

positions:
	VMOVDQU32 (SI), Z0
	VPANDD    Z12, Z0, Z1
	VPADDD    Z10, Z1, Z1             // positions
	VPSRLD    $15, Z0, Z0             // distances
	VPSUBD    Z0, Z1, Z2              // sources
	VPCMPD    $6, Z11, Z1, K1         // above the limit
	VPCMPD    $1, Z15, Z2, K2         // or a source too near the beginning
	KORW      K1, K2, K1
	VMOVDQA32 Z15, K1, Z1
	VMOVDQA32 Z15, K1, Z2
	VMOVDQU32 Z1, BEGINS(DI)
	VMOVDQU32 Z2, ENDS(DI)
	VMOVDQU32 Z0, DISTANCES(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, DX
	JGT  positions

	MOVQ text+0(FP), SI
	MOVQ R8, DI
	MOVQ R10, DX

around:
	MOVL BEGINS(DI), AX
	MOVL ENDS(DI), CX
	VMOVDQU8 -16(SI)(CX*1), Y0
	VPCMPUB  $4, -16(SI)(AX*1), Y0, K1
	KMOVD    K1, GAINS(DI)
	ADDQ $4, DI
	DECQ DX
	JNE  around

	MOVQ R8, DI

sixteen:
	VMOVDQU32 GAINS(DI), Z0
	VPANDD    (R9), Z12, Z1
	VPADDD    Z10, Z1, Z1             // positions
	VPSRLD    $16, Z0, Z2             // differences from the position on
	VPSLLD    $16, Z0, Z3             // and before it
	VPTESTNMD Z2, Z2, K1
	VPTESTNMD Z3, Z3, K2
	VPSUBD    Z2, Z16, Z4
	VPANDD    Z4, Z2, Z2
	VPLZCNTD  Z2, Z2
	VPSUBD    Z2, Z14, Z2
	VPADDD    Z2, Z1, Z2              // ends
	VPLZCNTD  Z3, Z3
	VPSUBD    Z3, Z1, Z3              // beginnings
	KORW      K1, K2, K1
	KORTESTW  K1, K1
	JNE       long

measured:
	VPLZCNTD  DISTANCES(DI), Z4
	VPADDD    Z13, Z4, Z4             // gain at length 0: the fewer bits the distance has, the more
	VPSLLD    $3, Z3, Z3
	VPSLLD    $3, Z2, Z2
	VPADDD    Z2, Z4, Z4
	VMOVDQU32 Z3, BEGINS(DI)
	VMOVDQU32 Z2, ENDS(DI)
	VMOVDQU32 Z4, GAINS(DI)
	ADDQ $64, R9
	ADDQ $64, DI
	SUBQ $16, R10
	JGT  sixteen
	VZEROUPPER
	RET

long: // a few per cent of the candidates
	KMOVW K1, BX

one:
	TZCNTL   BX, CX
	BLSRL    BX, BX
	MOVL     $1, AX
	SHLXL    CX, AX, AX
	KMOVW    AX, K1                    // its lane
	MOVL     BEGINS(DI)(CX*4), AX
	MOVL     ENDS(DI)(CX*4), CX
	VMOVDQU8 -32(SI)(CX*1), Z4
	VPCMPUB  $4, -32(SI)(AX*1), Z4, K2
	KMOVQ    K2, AX
	RORXQ    $32, AX, AX
	TZCNTL   AX, CX
	JCS      longer
	MOVQ     AX, DX
	SHRQ     $32, DX
	JEQ      longer
	LZCNTQ   AX, AX
	VPBROADCASTD CX, Z4
	VPADDD   Z4, Z1, K1, Z2
	VPBROADCASTD AX, Z4
	VPSUBD   Z4, Z1, K1, Z3
	TESTL    BX, BX
	JNE      one
	JMP      measured

longer:
	VMOVDQA32 Z16, K1, Z2
	VMOVDQA32 Z1, K1, Z3
	TESTL    BX, BX
	JNE      one
	JMP      measured

// func scanChooseAVX512(f *finder, text *byte, i, n int) int
//
// The scan mostly waits for the cache and the choice for its own results, so 16 positions and two
// candidates take turns.
TEXT ·scanChooseAVX512(SB), NOSPLIT, $16-40
	MOVQ f+0(FP), R8
	MOVQ text+8(FP), CX
	ADDQ (finder_scan+scanState_at)(R8), CX     // the next position
	MOVQ (finder_scan+scanState_left)(R8), AX
	ADDQ CX, AX
	MOVQ AX, scanned-8(SP)
	MOVQ (finder_scan+scanState_found)(R8), DI
	LEAQ finder_candidates(R8)(DI*4), DI

	VMOVDQU32    lanes16<>(SB), Z15
	MOVL         (finder_scan+scanState_rank)(R8), AX
	VPBROADCASTD AX, Z14
	VPADDD       Z15, Z14, Z14        // ranks
	MOVL         (finder_scan+scanState_at)(R8), AX
	VPBROADCASTD AX, Z0
	VPADDD       Z0, Z15, Z15
	VPSLLD       $15, Z15, Z15
	VPBROADCASTD finder_epoch(R8), Z0
	VPORD        Z0, Z15, Z15         // positions and epoch
	VPBROADCASTD finder_last(R8), Z13 // preceding distances
	VMOVDQU32    words16<>(SB), Z12
	VMOVDQU32    rests16<>(SB), Z11
	VPBROADCASTD prime1<>(SB), Z10
	VPBROADCASTD prime2<>(SB), Z9
	VPBROADCASTD checks<>(SB), Z8
	VPBROADCASTD tags<>(SB), Z16
	MOVL         $0x80000, AX
	VPBROADCASTD AX, Z17              // 16 positions
	MOVL         $16, AX
	VPBROADCASTD AX, Z18
	MOVQ         $0x3333333333333333, AX // two bytes of each four
	KMOVQ        AX, K1

	LEAQ finder_measures(R8), AX
	MOVQ i+16(FP), R9
	LEAQ (AX)(R9*4), R9               // the next candidate
	MOVQ n+24(FP), SI
	LEAQ (AX)(SI*4), SI
	MOVQ SI, end-16(SP)
	MOVQ (finder_choice+choice_prevEnd)(R8), R11
	MOVQ (finder_choice+choice_lastStart)(R8), R12
	MOVQ (finder_choice+choice_lastEnd)(R8), R13
	MOVQ (finder_choice+choice_lastGain)(R8), R14
	ADDQ $GAIN_BASE, R14

sixteen:
	CMPQ CX, scanned-8(SP)
	JGE  rest
	MOVQ f+0(FP), R8                  // the table is at offset 0
	VMOVDQU     (CX), Y0
	VPERMB      Z0, Z12, Z1
	VPERMB.Z    Z0, Z11, K1, Z0
	VPMULLD     Z10, Z1, Z1
	VPMULLD     Z9, Z0, Z0
	VPADDD      Z0, Z1, Z0
	VPSRLD      $16, Z0, Z2           // indexes in the table
	VPTERNLOGD  $0xea, Z15, Z16, Z0   // entries
	VPADDD      Z17, Z15, Z15

	// Exchange the entries; Z3 is what was in the table.
	EXCHANGE(X2, X0, DX, X3)
	VEXTRACTI32X4 $1, Z2, X1
	VEXTRACTI32X4 $1, Z0, X7
	EXCHANGE(X1, X7, DX, X4)
	VEXTRACTI32X4 $2, Z2, X1
	VEXTRACTI32X4 $2, Z0, X7
	EXCHANGE(X1, X7, DX, X5)
	VEXTRACTI32X4 $3, Z2, X1
	VEXTRACTI32X4 $3, Z0, X7
	EXCHANGE(X1, X7, DX, X6)
	VINSERTI128 $1, X4, Y3, Y3
	VINSERTI128 $1, X6, Y5, Y5
	VINSERTI64X4 $1, Y5, Z3, Z3

	VPSUBD      Z3, Z0, Z0
	VPTESTNMD   Z8, Z0, K2
	VMOVDQA32.Z Z0, K2, Z0            // distances, 0 where none is known
	VALIGND     $15, Z13, Z0, Z1      // the preceding distances
	VMOVDQA32   Z0, Z13
	VPTESTMD    Z0, Z0, K2, K2
	VPCMPUD     $4, Z1, Z0, K2, K2    // candidates
	VPORD       Z14, Z0, Z0
	VPADDD      Z18, Z14, Z14
	VPCOMPRESSD.Z Z0, K2, Z0
	VMOVDQU32   Z0, (DI)
	KMOVW       K2, AX
	POPCNTL     AX, AX
	LEAQ        (DI)(AX*4), DI
	ADDQ        $16, CX

	LEAQ    8(R9), SI
	CMPQ    SI, end-16(SP)
	CMOVQGT end-16(SP), SI
	CMPQ    R9, SI
	JGE     sixteen

candidate:
	MOVL ENDS(R9), R15
	TESTL R15, R15
	JEQ  done
	MOVL BEGINS(R9), BX
	MOVL GAINS(R9), R10
	// AX is where the preceding match ends. Conditions are carries, on which moves take half the
	// time.
	MOVL R13, AX
	MOVL $GAIN_BASE, DX           // the gain to exceed
	XORL R8, R8
	CMPL R12, BX
	CMOVLCC R11, AX
	CMOVLCC R14, DX
	CMPL BX, AX
	CMOVLCS AX, BX
	SUBL BX, R10                       // gain
	CMPL DX, R10
	CMOVLCS AX, R11
	CMOVLCS BX, R12
	CMOVLCS R15, R13
	CMOVLCS R10, R14
	CMOVLCS BX, R8
	MOVL R8, GAINS(R9)                 // where it begins if accepted, else 0
	ADDQ $4, R9
	CMPQ R9, SI
	JLT  candidate
	JMP  sixteen

rest:
	MOVQ end-16(SP), SI
	CMPQ R9, SI
	JLT  candidate

done:
	MOVQ f+0(FP), R8
	SUBQ text+8(FP), CX
	MOVQ CX, AX
	SUBQ (finder_scan+scanState_at)(R8), AX
	MOVQ CX, (finder_scan+scanState_at)(R8)
	ADDQ AX, (finder_scan+scanState_rank)(R8)
	SUBQ AX, (finder_scan+scanState_left)(R8)
	LEAQ finder_candidates(R8), AX
	SUBQ AX, DI
	SHRQ $2, DI
	MOVQ DI, (finder_scan+scanState_found)(R8)
	VEXTRACTI32X4 $3, Z13, X0
	VPEXTRD $3, X0, finder_last(R8)

	LEAQ finder_measures(R8), AX
	SUBQ AX, R9
	SHRQ $2, R9
	MOVQ R9, ret+32(FP)
	MOVQ R11, (finder_choice+choice_prevEnd)(R8)
	MOVQ R12, (finder_choice+choice_lastStart)(R8)
	MOVQ R13, (finder_choice+choice_lastEnd)(R8)
	SUBQ $GAIN_BASE, R14
	MOVQ R14, (finder_choice+choice_lastGain)(R8)
	VZEROUPPER
	RET

// Indexes that interleave three numbers each of 16 matches: 0 to 15 is a beginning, 16 to 31 an
// end. Every third one is the index of a distance.
DATA triples<>+0(SB)/8, $0x1202011101001000
DATA triples<>+8(SB)/8, $0x0504140403130302
DATA triples<>+16(SB)/8, $0x0717070616060515
DATA triples<>+24(SB)/8, $0x1a0a091909081808
DATA triples<>+32(SB)/8, $0x0d0c1c0c0b1b0b0a
DATA triples<>+40(SB)/8, $0x0f1f0f0e1e0e0d1d
GLOBL triples<>(SB), RODATA|NOPTR, $48

// func emitAVX512(m *measures, i, n, before int, matches *match, last int) int
TEXT ·emitAVX512(SB), NOSPLIT, $0-56
	MOVQ m+0(FP), R8
	MOVQ i+8(FP), SI
	LEAQ (R8)(SI*4), SI
	MOVQ n+16(FP), DX
	MOVQ $-1, R10
	MOVL $17, R11                     // more makes no difference
	MOVQ SI, R9
	MOVQ SI, DI

accepted:
	CMPQ    DX, R11
	MOVQ    R11, AX
	CMOVQLT DX, AX
	BZHIQ   AX, R10, AX
	KMOVW   AX, K1
	VMOVDQU32.Z GAINS(SI), K1, Z0
	VPTESTMD  Z0, Z0, K1
	KMOVW     K1, AX
	POPCNTL   AX, AX
	BZHIQ     AX, R10, BX
	KMOVW     BX, K2                  // writes stay below what was read
	VMOVDQU32 BEGINS(SI), Z1
	VMOVDQU32 ENDS(SI), Z2
	VMOVDQU32 DISTANCES(SI), Z3
	VPCOMPRESSD.Z Z0, K1, Z0
	VPCOMPRESSD.Z Z1, K1, Z1
	VPCOMPRESSD.Z Z2, K1, Z2
	VPCOMPRESSD.Z Z3, K1, Z3
	VMOVDQU32 Z0, K2, GAINS(DI)
	VMOVDQU32 Z1, K2, BEGINS(DI)
	VMOVDQU32 Z2, K2, ENDS(DI)
	VMOVDQU32 Z3, K2, DISTANCES(DI)
	LEAQ (DI)(AX*4), DI
	ADDQ $64, SI
	SUBQ $16, DX
	JGT  accepted

	MOVQ matches+32(FP), R8
	MOVQ last+40(FP), AX
	LEAQ (AX)(AX*2), CX
	LEAQ (R8)(CX*4), CX               // the last match
	SUBQ R9, DI
	SHRQ $2, DI
	JEQ  done
	MOVL BEGINS(R9), AX
	LEAQ match__size(CX), BX
	CMPQ before+24(FP), AX
	CMOVQCS BX, CX                    // keep the last match

	VPMOVZXBD triples<>+0(SB), Z10
	VPMOVZXBD triples<>+16(SB), Z11
	VPMOVZXBD triples<>+32(SB), Z12
	MOVL  $0x4924, AX
	KMOVW AX, K4
	MOVL  $0x2492, AX
	KMOVW AX, K5
	MOVL  $0x9249, AX
	KMOVW AX, K6

matches:
	// A match stays if the next one begins after its beginning. The last one stays.
	VMOVDQU32 GAINS(R9), Z0
	VPCMPUD   $1, (BEGINS+4)(R9), Z0, K1
	CMPQ      DI, R11
	MOVQ      R11, DX
	CMOVQLT   DI, DX
	BZHIQ     DX, R10, AX
	DECQ      DX
	BZHIQ     DX, R10, DX
	XORQ      DX, AX
	KMOVW     DX, K2
	KMOVW     AX, K3
	KANDW     K1, K2, K1
	KORW      K1, K3, K1
	VPSRLD    $3, Z0, Z0
	VPSRLD    $3, ENDS(R9), Z1
	VPCOMPRESSD.Z Z0, K1, Z0
	VPCOMPRESSD.Z Z1, K1, Z1
	VMOVDQU32     DISTANCES(R9), Z2
	VPCOMPRESSD.Z Z2, K1, Z2
	VMOVDQA32 Z10, Z3
	VPERMI2D  Z1, Z0, Z3
	VPERMD    Z2, Z10, K4, Z3
	VMOVDQA32 Z11, Z4
	VPERMI2D  Z1, Z0, Z4
	VPERMD    Z2, Z11, K5, Z4
	VMOVDQA32 Z12, Z5
	VPERMI2D  Z1, Z0, Z5
	VPERMD    Z2, Z12, K6, Z5
	VMOVDQU32 Z3, (CX)
	VMOVDQU32 Z4, 64(CX)
	VMOVDQU32 Z5, 128(CX)
	KMOVW     K1, AX
	POPCNTL   AX, AX
	LEAQ      (AX)(AX*2), AX
	LEAQ      (CX)(AX*4), CX
	ADDQ $64, R9
	SUBQ $16, DI
	JGT  matches
	SUBQ $match__size, CX

done:
	SUBQ CX, R8
	SARQ $2, R8
	MOVQ $0x5555555555555555, DX       // -1/3
	IMULQ DX, R8
	MOVQ R8, ret+48(FP)
	VZEROUPPER
	RET
