//go:build !amd64

package mph

const hasLanes = false

// Never called, since hasLanes is false.

func locateFirstAVX512(*batch, int, uint64, uint64, *openBucket, *byte) {}

func locateNextAVX512(*batch, int, uint64, uint64, *openLevel, *byte) {}

func partitionAVX512(*batch, int, int, *byte) int { return 0 }

func rankAVX512(*batch, int, *openBucket, *byte, *uint64) int { return -1 }

func ordinalsAVX512(*batch, []Key, *byte, uint64, uint64, *uint32) int { return 0 }
