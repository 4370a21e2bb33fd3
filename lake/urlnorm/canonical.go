package urlnorm

type hostMemo struct{}

func (n *Normalizer) parseCanonical(raw []byte) (URL, bool) { return URL{}, false }
