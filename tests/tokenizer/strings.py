"""Random, multilingual and adversarial strings for the tokenizer comparison. The same seed gives the same strings."""

import random
import sys
import unicodedata

# Assigned in Unicode 14 but not in 13, which all of the compared libraries know.
NEW_IN_14 = [
    (0x61d, 0x61d), (0x870, 0x88e), (0x890, 0x891), (0x898, 0x89f), (0x8b5, 0x8b5), (0x8c8, 0x8d2), (0xc3c, 0xc3c),
    (0xc5d, 0xc5d), (0xcdd, 0xcdd), (0x170d, 0x170d), (0x1715, 0x1715), (0x171f, 0x171f), (0x180f, 0x180f),
    (0x1ac1, 0x1ace), (0x1b4c, 0x1b4c), (0x1b7d, 0x1b7e), (0x1dfa, 0x1dfa), (0x20c0, 0x20c0), (0x2c2f, 0x2c2f),
    (0x2c5f, 0x2c5f), (0x2e53, 0x2e5d), (0x9ffd, 0x9fff), (0xa7c0, 0xa7c1), (0xa7d0, 0xa7d9), (0xa7f2, 0xa7f4),
    (0xfbc2, 0xfbc2), (0xfd40, 0xfd4f), (0xfdcf, 0xfdcf), (0xfdfe, 0xfdff), (0x10570, 0x105bc), (0x10780, 0x107ba),
    (0x10f70, 0x10f89), (0x11070, 0x11075), (0x110c2, 0x110c2), (0x116b9, 0x116b9), (0x11740, 0x11746),
    (0x11ab0, 0x11abf), (0x12f90, 0x12ff2), (0x16a70, 0x16ac9), (0x1aff0, 0x1affe), (0x1b11f, 0x1b122),
    (0x1cf00, 0x1cfc3), (0x1d1e9, 0x1d1ea), (0x1df00, 0x1df1e), (0x1e290, 0x1e2ae), (0x1e7e0, 0x1e7fe),
    (0x1f6dd, 0x1f6df), (0x1f7f0, 0x1f7f0), (0x1f979, 0x1f979), (0x1f9cc, 0x1f9cc), (0x1fa7b, 0x1fa7c),
    (0x1faa9, 0x1faac), (0x1fab7, 0x1faba), (0x1fac3, 0x1fac5), (0x1fad7, 0x1fad9), (0x1fae0, 0x1faf6),
    (0x2a6de, 0x2a6df), (0x2b735, 0x2b738)]

SENTENCES = """The quick brown fox jumps over the lazy dog, doesn't it? I'LL say they'Ve won; we'd've known.
Der Fluß überquert die größte Brücke Österreichs – „schön“, sagte er.
Où est-ce que l'élève naïf a déjà mangé ? À Noël, c'était ça…
El niño comió piñas: ¿qué más quería? ¡Nada más!
Łódź, żółw i źdźbło; pchnąć w tę łódź jeża lub ośm skrzyń fig.
Příliš žluťoučký kůň úpěl ďábelské ódy.
Съешь же ещё этих мягких французских булок, да выпей чаю.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.
משפט בעברית עם ניקוד: שָׁלוֹם עֲלֵיכֶם, מה שלומך?
نص عربي قصير مع تشكيل: السَّلامُ عَلَيْكُمْ ورحمة الله، ١٢٣.
متن فارسی با نیم‌فاصله: می‌خواهم کتاب‌ها را بخوانم.
यह हिन्दी का एक वाक्य है, जिसमें क्षेत्रज्ञ और १२३ हैं।
এটি একটি বাংলা বাক্য। তুমি কেমন আছ?
இது ஒரு தமிழ் வாக்கியம்; நன்றி!
ประโยคภาษาไทยที่ไม่มีช่องว่างระหว่างคำ ๑๒๓
Đây là một câu tiếng Việt có nhiều dấu thanh: những, được, ngữ nghĩa.
今日は良い天気ですね。カタカナとひらがな、漢字が混ざっています！
这是一个中文句子，包含标点符号：你好，世界！2024年3月15日。
繁體中文的句子也需要測試，例如「龍」與『鬱』。
한국어 문장입니다. 띄어쓰기가 있고, 받침도 있습니다: 값, 닭.
ᄒᆞᆫ글 자모 ᄀ ᄁ ᆨ ㄱㅏ
ქართული ანბანი და Հայերեն տառեր, አማርኛ ፊደል ፩፪፫
မြန်မာစာ နှင့် ភាសាខ្មែរ ພາສາລາວ བོད་ཡིག
👩‍👩‍👧‍👦 family 🏳️‍🌈 flag 🇩🇪🇯🇵 👍🏽 ❤️ ☎︎ 1️⃣ 🤷🏾‍♀️
def f(x: int) -> str:␤    return f"{x!r:>{10}}" if x<=0 else '\\n'␤
for(int i=0;i<n;++i){a[i]^=b[i]<<3|~c[i]>>1;} // comment\r␤\tx += y;
#include <vector>␤␤␤template<typename T>␤class FooBarBaz { std::vector<T> m_xs; };␤
SELECT * FROM tbl_Name WHERE camelCaseID='XMLHttpRequest' AND x>=3.14159e-10;
https://example.org/path/to/page?q=%E4%BD%A0&lang=de#top user.name+tag@mail.example.com
{"key": [1, 22, 333, 4444, 55555, 1234567890123], "v": null, "u": "\\u00e9"}
| a | b |␤|---|:-:|␤| 1 | 2 |␤␤- [x] item **bold** _it_ `code` $x^2_{ij}$ \\frac{a}{b}
½ ⅓ Ⅷ ⅷ ① ② ㊀ ² ³ ₁₂ ٤٥ ५६ 四五 〇 𝟘𝟙 𝓐𝓫 ﬁ ﬃ ﷺ ｱｲｳ ＡＢＣ ℌ Å Å Å
a\u0300\u0316\u0301 e\u0301 o\u0302\u0323 n\u0303 \u0301alone ẛ̣ q̣̇ q̣̇ ậ ậ
don'T I'M YOU'RE HE'LL 'S 'ſ it'ſ ''s '' 'll 'LLama 're're x'd'd 'Ve""".split("\n")

SPACES = list(" \t\n\r\x0b\x0c\x1c\x85\xa0") + [
    "\u1680", "\u180e", "\u2000", "\u2003", "\u2009", "\u200a", "\u200b", "\u200c", "\u200d", "\u2028", "\u2029",
    "\u202f", "\u205f", "\u2060", "\u3000", "\ufeff", "\r\n", "  ", "    ", "\n\n", "\n \n", " \n", "\t\t", "\u2581",
    " \u2581", "\u2581\u2581"]

SPECIALS = [
    "<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>",
    "<|eot_id|>", "<|start_header_id|>", "<|end|", "<|", "|>", "<0x41>", "<0x0A>", "<0xE4>", "<repo_name>",
    "<gh_stars>", "<|extra_0|>", "<｜begin▁of▁sentence｜>", "<｜User｜>", "<|header_start|>", "<s", "s>", "<<s>>",
    "<|im_start|><|im_end|>", "Ġ", "Ċ", "Ġthe", "▁the", "\ufffd", "\u0000", "\u007f", "\u0080", "\u00ad"]


class Strings:
    def __init__(self, seed):
        self.random = random.Random(seed)
        new = {cp for low, high in NEW_IN_14 for cp in range(low, high + 1)}
        assigned = [cp for cp in range(0x110000)
                    if unicodedata.category(chr(cp)) not in ("Cn", "Cs", "Co") and cp not in new]
        self.by_category = {}
        for cp in assigned:
            self.by_category.setdefault(unicodedata.category(chr(cp)), []).append(chr(cp))
        self.categories = sorted(self.by_category)
        self.assigned = [chr(cp) for cp in assigned]
        self.sentences = [s.replace("␤", "\n") for s in SENTENCES]
        self.words = [w for s in self.sentences for w in s.split(" ") if w]

    def character(self):
        """Evenly over categories, so that rare ones come too."""
        return self.random.choice(self.by_category[self.random.choice(self.categories)])

    def any_characters(self):
        return "".join(self.random.choice(self.assigned) for _ in range(self.random.randint(0, 30)))

    def by_categories(self):
        return "".join(self.character() for _ in range(self.random.randint(0, 40)))

    def latin(self):
        return "".join(chr(self.random.randint(0x20, 0x24f)) for _ in range(self.random.randint(0, 60)))

    def ascii(self):
        return "".join(chr(self.random.randint(0, 127)) for _ in range(self.random.randint(0, 80)))

    def sentence(self):
        return " ".join(self.random.choice(self.sentences) for _ in range(self.random.randint(1, 3)))

    def mixed_words(self):
        out = []
        for _ in range(self.random.randint(1, 25)):
            out.append(self.random.choice(self.words))
            out.append(self.random.choice(SPACES) if self.random.random() < 0.4 else " ")
        return "".join(out)

    def cased(self):
        words = []
        for _ in range(self.random.randint(1, 12)):
            word = self.random.choice(self.words)
            words.append("".join(c.upper() if self.random.random() < 0.3 else c for c in word))
        # Upper case may be characters that are new, or more than one.
        return self.random.choice(["", " ", "_", "-", "/"]).join(words)

    def runs(self):
        out = []
        for _ in range(self.random.randint(1, 6)):
            unit = self.random.choice([self.character(), self.random.choice(SPACES), self.random.choice(self.words),
                                       self.random.choice("aA0.!'-\n ")])
            out.append(unit * self.random.choice([1, 2, 3, 4, 7, 16, 33, 50]))
        return "".join(out)

    def specials(self):
        parts = []
        for _ in range(self.random.randint(1, 8)):
            parts.append(self.random.choice(SPECIALS))
            parts.append(self.random.choice([self.random.choice(SPACES), self.random.choice(self.words), "", ""]))
        return "".join(parts)

    def digits(self):
        pool = self.by_category["Nd"] + self.by_category["No"] + list("0123456789" * 60)
        out = []
        for _ in range(self.random.randint(1, 6)):
            out.append("".join(self.random.choice(pool) for _ in range(self.random.randint(1, 9))))
            out.append(self.random.choice(["", " ", ",", ".", "a", "\n", "°", "'s"]))
        return "".join(out)

    def long_word(self):
        letters = self.random.choice(["abcdefghijklmnopqrstuvwxyz", "йцукенгшщзхъ", "的一是在不了有和人这中大", "กขคงจฉชซ", "aeiou"])
        return "".join(self.random.choice(letters) for _ in range(self.random.randint(50, 400)))

    def generate(self, count):
        kinds = [self.any_characters, self.by_categories, self.latin, self.ascii, self.sentence, self.mixed_words,
                 self.mixed_words, self.cased, self.runs, self.specials, self.digits]
        out = ["", " ", "  ", "\n", "a", "\u2581", "'", "'s", " 's", "\u0301"]
        while len(out) < count:
            kind = self.long_word if self.random.random() < 0.01 else self.random.choice(kinds)
            text = kind()
            if self.random.random() < 0.1:
                text = self.random.choice(SPACES) + text + self.random.choice(SPACES)
            out.append(text)
        return out[:count]


if __name__ == "__main__":
    for line in Strings(int(sys.argv[1]) if len(sys.argv) > 1 else 1).generate(40):
        print(repr(line))
