//go:build !amd64

package rowsort

import "github.com/urlake/urlake/lake/urlnorm"

func (b *Buffer) addMany(uint32, []urlnorm.Parsed) int { return 0 }

func listBlock([]byte, uint32, []uint32, []uint32) bool { return false }
