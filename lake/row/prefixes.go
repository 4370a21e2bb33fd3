package row

import (
	"fmt"
	"strconv"

	"github.com/urlake/urlake/lake"
)

// PartitionsOf returns the range of partitions that a domain_prefix stands for, both ends included.
func PartitionsOf(prefix string) (first, last byte, err error) {
	if prefix == lake.AnyPrefix {
		return 0, 255, nil
	}
	v, err := strconv.ParseUint(prefix, 16, 8)
	switch {
	case err == nil && len(prefix) == 1:
		return byte(v << 4), byte(v<<4 | 15), nil
	case err == nil && len(prefix) == 2:
		return byte(v), byte(v), nil
	}
	return 0, 0, fmt.Errorf("domain prefix %q", prefix)
}

// PrefixOf returns the domain_prefix of a partition for a width in hex digits; 0 is any.
func PrefixOf(partition, width int) string {
	switch width {
	case 0:
		return lake.AnyPrefix
	case 1:
		return fmt.Sprintf("%x", partition>>4)
	}
	return fmt.Sprintf("%02x", partition)
}
