package row

// Row returns the row. Its strings are views into k, valid until the next step.
func (k *Key) Row() Row {
	r := Row{
		Domain: View(k.text(keyDomain)), Host: View(k.text(keyHost)), PathQuery: View(k.text(keyPath)),
		Scheme: View(k.text(keyScheme)), Port: k.port(), Extras: View(k.text(keyExtras)), RawURL: View(k.rawURL()),
	}
	r.TS, r.HasTS = k.number(keyTS)
	r.Size, r.HasSize = k.number(keySize)
	return r
}
