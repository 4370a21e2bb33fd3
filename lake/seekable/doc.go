// Package seekable reads and writes frame files: zstd files of independent frames, in which a
// reader finds and decodes single frames. Postings, runs, shuffle files, the files of segments and
// the lists of rejects and of splits are frame files.
//
// # Format
//
// A frame file is in zstd's seekable format (facebook/zstd, contrib/seekable_format,
// zstd_seekable_compression_format.md): zstd frames (RFC 8878) that are decoded independently, then
// the footer, which consists of skippable frames. Every zstd decoder passes over skippable frames,
// so zstd -d prints the data alone.
//
//	frame 0 … frame n-1
//	fences      u32 0x184D2A5D | u32 size | "FNCE" u32 ver=1 | u32 n | u32 width
//	            | n × width bytes | u32 CRC-32C
//	seek table  u32 0x184D2A5E | u32 size | n × {u32 compressed, u32 decompressed, u32 checksum}
//	            | u32 n | u8 0x80 | u32 0x8F92EAB1
//
// Fences are urlake's addition. Each is the key of the first record of a frame, as bytes that sort
// like the keys; a file without keys has none. A frame's checksum is the low half of the xxh64 of
// its decompressed bytes.
//
// A reader loads the footer in one read. Its size and hash are not in the file but in a record that
// names the file (File). The reader then knows the range of every frame, so a lookup is one range
// request.
//
// # Promises
//
// The bytes of a file depend only on the calls of its Writer, not on time, concurrency or the
// processor. Bytes that a reader returns have the checksum of their frame; everything else is a
// *codec.CorruptError.
package seekable
