package row

// Row returns the row. Its strings are views into k, valid until the next step.
func (k *Key) Row() Row {
	s := k.suffixes[k.rows&1]
	return Row{
		Domain: View(k.text(keyDomain)), Host: View(k.text(keyHost)), PathQuery: View(k.text(keyPath)),
		Scheme: s.Scheme, Port: s.Port, TS: s.TS, HasTS: s.HasTS, Size: s.Size, HasSize: s.HasSize,
		Extras: s.Extras, RawURL: View(k.key[k.ends[keySuffix]:]),
	}
}
