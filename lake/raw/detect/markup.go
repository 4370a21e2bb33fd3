package detect

import (
	"github.com/urlake/urlake/lake/raw"
	"github.com/urlake/urlake/lake/raw/markup"
)

// sniffMarkup returns the format of text that begins with <. It rejects formats that are not read.
func (d *detector) sniffMarkup() (string, error) {
	if name, known := markup.Encoding(d.text); !known {
		return "", d.reject("it is text in the encoding "+name+", which is not known",
			"write it as UTF-8: iconv -f "+name+" -t UTF-8 FILE")
	}
	format, reason, advice := markup.Sniff(d.text)
	if format == "" {
		return "", d.reject(reason, advice)
	}
	return format, nil
}

// planMarkup plans an object in one of raw.MarkupFormats.
func (d *detector) planMarkup() error {
	format := d.plan.Format
	if d.opt.Format == format && format != raw.NTriples {
		if is, reason, advice := markup.Sniff(d.text); is == "" {
			return d.reject(reason, advice)
		} else if is != format {
			return d.reject("it is "+is+" and not "+format, "let urlake recognise its format (--format auto)")
		}
	}
	d.plan.Columns = markup.Columns(format)
	if err := d.planNamed(d.cdxColumn, d.cdxColumn); err != nil {
		return err
	}
	var err error
	if d.opt.URLColumn == "" {
		if d.plan.URL, err = d.cdxColumn("url"); err != nil {
			return err
		}
	}
	if d.plan.TS == nil && !d.noTime && format != raw.NTriples {
		c, err := d.cdxColumn("timestamp")
		if err != nil {
			return err
		}
		d.plan.TS, d.plan.TSChosen = &c, true
	}
	d.keepColumns(true)
	for _, n := range markup.Notes(format, d.text) {
		d.note("%s", n)
	}
	return nil
}
