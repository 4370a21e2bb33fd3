#include "go_asm.h"
#include "textflag.h"

// The part of XXH3's default secret that hashes of 17 to 128 bytes use ("XXH3 algorithm overview"
// of the xxHash specification): 64 bytes for the first bytes of the URL, 64 for the last ones.
DATA secret<>+0(SB)/8, $0xbe4ba423396cfeb8
DATA secret<>+8(SB)/8, $0x1cad21f72c81017c
DATA secret<>+16(SB)/8, $0x78e5c0cc4ee679cb
DATA secret<>+24(SB)/8, $0x2172ffcc7dd05a82
DATA secret<>+32(SB)/8, $0xcb00c391bb52283c
DATA secret<>+40(SB)/8, $0xa32e531b8b65d088
DATA secret<>+48(SB)/8, $0x3f349ce33f76faa8
DATA secret<>+56(SB)/8, $0x1d4f0bc7c7bbdcf9
DATA secret<>+64(SB)/8, $0x3159b4cd4be0518a
DATA secret<>+72(SB)/8, $0x647378d9c97e9fc8
DATA secret<>+80(SB)/8, $0x4ef90da297486471
DATA secret<>+88(SB)/8, $0xd8acdea946ef1938
DATA secret<>+96(SB)/8, $0x8e2443f7744608b8
DATA secret<>+104(SB)/8, $0x4c263a81e69035e0
DATA secret<>+112(SB)/8, $0xdb979083e96dd4de
DATA secret<>+120(SB)/8, $0x1f67b3b7a4a44072
GLOBL secret<>(SB), RODATA|NOPTR, $128

// The numbers from 0 to 63.
DATA count<>+0(SB)/8, $0x0706050403020100
DATA count<>+8(SB)/8, $0x0f0e0d0c0b0a0908
DATA count<>+16(SB)/8, $0x1716151413121110
DATA count<>+24(SB)/8, $0x1f1e1d1c1b1a1918
DATA count<>+32(SB)/8, $0x2726252423222120
DATA count<>+40(SB)/8, $0x2f2e2d2c2b2a2928
DATA count<>+48(SB)/8, $0x3736353433323130
DATA count<>+56(SB)/8, $0x3f3e3d3c3b3a3938
GLOBL count<>(SB), RODATA|NOPTR, $64

// ONES sets the lowest bits bits of mask and k, and all if bits is 64 to 255.
#define ONES(bits, mask, k) \
	MOVQ  $-1, mask         \
	BZHIQ bits, mask, mask  \
	KMOVQ mask, k

// MIX is XXH3's mix of 16 bytes. It sets to to the product of two words of the URL, which are
// combined with the secret already, with its upper half XORed into the lower one.
#define MIX(at, to) \
	MOVQ  at(R15), DX           \
	MULXQ (at+8)(R15), R14, to  \
	XORQ  R14, to

// PAST adds the mixes a and b to acc if the URL, of R12 bytes, is longer than bytes.
#define PAST(bytes, a, b, acc) \
	ADDQ b, a      \
	MOVQ bytes, b  \
	SUBQ R12, b    \
	SARQ $63, b    \
	ANDQ b, a      \
	ADDQ a, acc

// func addPaths(p *pathRows)
//
// Registers:
//   SI, CX        the row, and the number of rows from it on
//   R9, Z1        length and first 64 bytes of the previous path, zeros behind its end
//   R12, DX       address and length of the row's path
//   Z0, Z4        its first 64 bytes and the 64 behind them, zeros behind its end
//   R10, R11      the next row of the page, and the size of its paths as PLAIN
//   DI, Z31       the end of the suffixes, and all of them ORed
//   Z30           the origin
//   Z26, K6       a permutation that moves bytes up by the length of the origin, and a mask of the
//                 bytes behind the origin
//   K7            all ones while the row is the first of its host
//   R8            0
TEXT ·addPaths(SB), NOSPLIT, $256-8
	MOVQ p+0(FP), R13
	LEAQ scratch-256(SP), R15
	ADDQ $63, R15
	ANDQ $-64, R15
	XORL R8, R8

	MOVQ  pathRows_rows(R13), SI
	MOVQ  pathRows_n(R13), CX
	MOVQ  pathRows_lastLen(R13), R9
	MOVQ  pathRows_row(R13), R10
	MOVQ  pathRows_plain(R13), R11
	MOVQ  pathRows_out(R13), DI
	ADDQ  pathRows_size(R13), DI
	KMOVQ pathRows_fresh(R13), K7

	VMOVDQU64 secret<>(SB), Z29
	VMOVDQU64 secret<>+64(SB), Z28
	VMOVDQU64 count<>(SB), Z27
	MOVQ      $64, AX
	VPBROADCASTB AX, Z25
	VPADDB    Z27, Z25, Z25
	VPXORQ    Z31, Z31, Z31

	CMPQ       R9, AX
	CMOVQLT    R9, AX
	ONES(AX, BX, K1)
	MOVQ       pathRows_last(R13), AX
	MOVQ       AX, last-8(SP)
	VMOVDQU8.Z (AX), K1, Z1

	MOVQ         pathRows_scheme(R13), AX
	VMOVDQU64    (AX), Z30
	MOVQ         pathRows_schemeLen(R13), AX
	MOVQ         pathRows_hostLen(R13), BX
	MOVQ         pathRows_host(R13), R14
	ONES(BX, DX, K1)
	VMOVDQU8.Z   (R14), K1, Z2
	VPBROADCASTB AX, Z3
	VPSUBB       Z3, Z27, Z3
	VPERMB       Z2, Z3, Z2
	VPORQ        Z2, Z30, Z30
	ADDQ         BX, AX
	VPBROADCASTB AX, Z26
	VPSUBB       Z26, Z27, Z26
	ONES(AX, BX, K6)
	KNOTQ        K6, K6

row:
	MOVQ 24(SI), AX
	CMPQ AX, pathRows_suffix(R13)
	JNE  done
	MOVQ (SI), R12
	MOVQ 8(SI), DX
	LEAQ -1(DX), AX
	CMPQ AX, $const_maxPathRow
	JCC  done

	// Load the lines that hold the path, each as a whole. A load that reaches into another line
	// waits for that line, even if a mask excludes its bytes, and nobody has prefetched it.
	MOVQ         R12, BX
	ANDQ         $-64, BX
	LEAQ         -1(R12)(DX*1), R14
	SUBQ         BX, R14           // from the start of its first line to its last byte
	SUBQ         BX, R12
	VPBROADCASTB R12, Z4
	VPADDB       Z27, Z4, Z4
	MOVQ         BX, AX
	LEAQ         64(BX), R12
	CMPQ         R14, $64
	CMOVQGE      R12, AX
	VMOVDQA64    (BX), Z0
	VMOVDQA64    (AX), Z2
	LEAQ         128(BX), R12
	CMPQ         R14, $128
	CMOVQGE      R12, BX
	VMOVDQA64    (BX), Z3
	VMOVDQA64    Z4, Z5
	MOVQ         DX, AX
	SUBQ         $64, AX
	CMOVQLT      R8, AX
	MOVQ         DX, R12
	CMPQ         DX, $255
	JHI          wide

masks:
	ONES(R12, BX, K1)
	ONES(AX, BX, K2)
	VPERMI2B.Z   Z2, Z0, K1, Z5
	VPERMI2B.Z   Z3, Z2, K2, Z4
	VMOVDQA64    Z5, Z0
	MOVQ         (SI), R12

	VPCMPUB $4, Z1, Z0, K2 // differs
	VPCMPUB $6, Z1, Z0, K3 // is above
	KORQ    K7, K3, K3
	MOVQ    DX, R14
	CMPQ    R9, DX
	CMOVQLT R9, R14
	KMOVQ   K2, AX
	TZCNTQ  AX, AX
	CMPQ    R14, AX
	CMOVQLT R14, AX        // the length of the common prefix
	CMPQ    AX, $64
	JEQ     far
	KMOVQ   K3, R14
	BTQ     AX, R14
	JCC     below

	MOVQ         pathRows_prefixes(R13), R14
	MOVL         AX, (R14)(R10*4)
	MOVQ         DX, BX
	SUBQ         AX, BX
	MOVQ         pathRows_suffixes(R13), R14
	MOVL         BX, (R14)(R10*4)
	CMPQ         BX, $64
	JHI          long
	VPBROADCASTB AX, Z2
	VPADDB       Z27, Z2, Z2
	VPERMI2B     Z4, Z0, Z2
	VPORQ        Z2, Z31, Z31
	VMOVDQU64    Z2, (DI)
	ADDQ         BX, DI

hash:
	LEAQ 4(R11)(DX*1), R11
	MOVQ pathRows_originLen(R13), R12
	ADDQ DX, R12
	LEAQ -17(R12), BX
	CMPQ BX, $(128-17)
	JHI  late

	// Z5 and Z3 are the URL, Z2 its last 64 bytes. What a shorter URL does not have, PAST ignores.
	VPERMB       Z0, Z26, Z2
	VPERMB       Z4, Z26, Z3
	VPBLENDMB    Z2, Z30, K6, Z5
	VPBLENDMB    Z3, Z2, K6, Z3
	VPBROADCASTB R12, Z2
	VPADDB       Z25, Z2, Z2
	VPERMI2B     Z3, Z5, Z2
	VPXORQ       Z29, Z5, Z5
	VPXORQ       Z28, Z2, Z2
	// 32 bytes a store: some processors cannot forward wider stores to the smaller loads below.
	VMOVDQA       Y5, (R15)
	VEXTRACTI64X4 $1, Z5, 32(R15)
	VMOVDQA       Y2, 64(R15)
	VEXTRACTI64X4 $1, Z2, 96(R15)

	MOVQ  $0x9e3779b185ebca87, AX
	IMULQ R12, AX
	MIX(0, BX)
	ADDQ  BX, AX
	MIX(112, BX)
	ADDQ  BX, AX
	MIX(16, BX)
	MIX(96, DX)
	PAST($32, BX, DX, AX)
	MIX(32, BX)
	MIX(80, DX)
	PAST($64, BX, DX, AX)
	MIX(48, BX)
	MIX(64, DX)
	PAST($96, BX, DX, AX)

	MOVQ  AX, BX
	SHRQ  $37, BX
	XORQ  BX, AX
	MOVQ  $0x165667919e3779f9, BX
	IMULQ BX, AX
	MOVQ  AX, BX
	SHRQ  $32, BX
	XORQ  BX, AX
	MOVQ  pathRows_ids(R13), BX
	MOVQ  AX, (BX)(R10*8)

	KXORQ     K7, K7, K7
	VMOVDQA64 Z0, Z1
	MOVQ      (SI), R12
	MOVQ      8(SI), R9
	MOVQ      R12, last-8(SP)
	ADDQ      $32, SI
	INCQ      R10
	DECQ      CX
	JZ        done
	CMPQ      R11, pathRows_limit(R13)
	JLT       row
	JMP       done

late:
	MOVQ $1, pathRows_late(R13)
	INCQ R10
	DECQ CX
	JMP  done

	// The path is not greater than the previous one. It may be the same record.
below:
	CMPQ AX, DX
	JNE  done
	CMPQ AX, R9
	JNE  done
	ADDQ $32, SI
	DECQ CX
	JNZ  row

done:
	VPMOVB2M Z31, K1
	KMOVQ    K1, pathRows_high(R13)
	MOVQ     R10, pathRows_row(R13)
	MOVQ     R11, pathRows_plain(R13)
	SUBQ     pathRows_out(R13), DI
	MOVQ     DI, pathRows_size(R13)
	MOVQ     CX, pathRows_n(R13)
	VZEROUPPER
	RET

	// ONES takes lengths of 8 bits.
wide:
	MOVQ $255, R12
	MOVQ $64, AX
	JMP  masks

	// Both paths begin with the same 64 bytes. R14 is the length of the shorter one.
far:
	MOVQ last-8(SP), R8

more:
	CMPQ       AX, R14
	JGE        order
	MOVQ       R14, BX
	SUBQ       AX, BX
	MOVQ       $64, R12
	CMPQ       BX, R12
	CMOVQGT    R12, BX
	ONES(BX, R12, K2)
	MOVQ       (SI), R12
	VMOVDQU8.Z (R12)(AX*1), K2, Z2
	VMOVDQU8.Z (R8)(AX*1), K2, Z3
	VPCMPUB    $4, Z3, Z2, K2
	KMOVQ      K2, BX
	TZCNTQ     BX, BX
	ADDQ       BX, AX
	CMPQ       BX, $64
	JEQ        more
	JMP        found

order:
	MOVQ R14, AX

found:
	MOVQ     (SI), R12
	MOVQ     R8, BX
	XORL     R8, R8
	KORTESTQ K7, K7
	JNE      above
	CMPQ     AX, DX
	JGE      below
	CMPQ     AX, R9
	JGE      above
	MOVBLZX  (R12)(AX*1), R14
	CMPB     R14, (BX)(AX*1)
	JLS      done

above:
	MOVQ pathRows_prefixes(R13), R14
	MOVL AX, (R14)(R10*4)
	MOVQ DX, BX
	SUBQ AX, BX
	MOVQ pathRows_suffixes(R13), R14
	MOVL BX, (R14)(R10*4)

	// The suffix has BX bytes, which may be any number.
long:
	CMPQ         DX, $128
	JHI          huge
	VPBROADCASTB AX, Z3
	VPADDB       Z27, Z3, Z3
	VMOVDQA64    Z3, Z2
	ONES(BX, R14, K2)
	VPERMI2B.Z   Z4, Z0, K2, Z2
	VPORQ        Z2, Z31, Z31
	VMOVDQU64    Z2, (DI)
	ADDQ         BX, DI
	SUBQ         $64, BX
	JLE          hash
	ONES(BX, R14, K2)
	VPERMB.Z     Z4, Z3, K2, Z2
	VPORQ        Z2, Z31, Z31
	SUBQ         BX, DI
	VMOVDQU64    Z2, (DI)
	ADDQ         BX, DI
	JMP          hash

	// The suffix is copied from memory.
huge:
	ADDQ R12, AX

piece:
	SUBQ      $64, BX
	JLT       rest
	VMOVDQU64 (AX), Z2
	VPORQ     Z2, Z31, Z31
	VMOVDQU64 Z2, (DI)
	ADDQ      $64, AX
	ADDQ      $64, DI
	JMP       piece

rest:
	VMOVDQU64    (AX)(BX*1), Z2
	ADDQ         $64, BX
	VPBROADCASTB BX, Z3
	VPSUBB       Z3, Z27, Z3
	ONES(BX, R14, K2)
	VPERMB.Z     Z2, Z3, K2, Z2
	VPORQ        Z2, Z31, Z31
	VMOVDQU64    Z2, (DI)
	ADDQ         BX, DI
	JMP          hash
