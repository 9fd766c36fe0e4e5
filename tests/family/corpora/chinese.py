"""Chinese: measure words, numerals, rewrites, small translations, and short compositions from a grammar."""

from __future__ import annotations

from random import Random

from tests.family.corpora.grammar import Corpus, numbered

NAMES = ("小明", "小红", "小华", "小丽", "李老师", "王医生", "张先生", "陈阿姨", "爷爷", "奶奶", "妹妹", "哥哥")
# noun -> (measure word, English)
NOUNS = {"书": ("本", "book"), "笔": ("支", "pen"), "猫": ("只", "cat"), "狗": ("条", "dog"), "鱼": ("条", "fish"), "树": ("棵", "tree"), "车": ("辆", "car"), "花": ("朵", "flower"), "桌子": ("张", "table"), "椅子": ("把", "chair"), "衣服": ("件", "coat"), "苹果": ("个", "apple"), "信": ("封", "letter"), "杯子": ("个", "cup"), "地图": ("张", "map"), "马": ("匹", "horse")}
PLACES = ("公园", "学校", "图书馆", "市场", "河边", "山上", "车站", "花园", "商店", "医院")
WEATHER = ("晴天", "雨天", "阴天", "下雪的日子", "刮风的日子")
TIMES = ("今天", "昨天", "明天", "上个星期", "星期一", "星期三", "星期五", "周末")
OPPOSITES = (("大", "小"), ("高", "低"), ("快", "慢"), ("新", "旧"), ("多", "少"), ("长", "短"), ("冷", "热"), ("远", "近"), ("轻", "重"), ("早", "晚"), ("明亮", "黑暗"), ("安静", "吵闹"))
# (verb, result form used after 把 and 被)
VERBS = (("拿走", "拿走了"), ("找到", "找到了"), ("洗干净", "洗干净了"), ("卖掉", "卖掉了"), ("画下来", "画下来了"), ("送给朋友", "送给朋友了"), ("带回家", "带回家了"), ("放好", "放好了"))
FEELINGS = ("高兴", "难过", "累", "兴奋", "平静", "感动")
_DIGITS = "零一二三四五六七八九"
_OPENINGS = ("",) * 5 + ("请问，", "你好，", "老师，", "帮我一下，")
_CLOSINGS = ("",) * 6 + ("谢谢！", "多谢。")


def _ask(rng: Random, templates: tuple[str, ...], **fields: object) -> str:
    return rng.choice(_OPENINGS) + rng.choice(templates).format(**fields) + rng.choice(_CLOSINGS)


def numeral(n: int) -> str:
    """Chinese numeral for 0 <= n <= 9999."""
    if n < 10:
        return _DIGITS[n]
    text, gap = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = n // unit % 10
        if digit:
            text += ("零" if gap and text else "") + _DIGITS[digit] + name
        gap = digit == 0
    return text.removeprefix("一") if 10 <= n < 20 else text


def _measure(rng: Random) -> tuple[str, str]:
    who, n = rng.choice(NAMES), rng.randint(2, 99)
    noun, (word, _) = rng.choice(list(NOUNS.items()))
    amount = "两" if n == 2 else numeral(n)
    prompt = _ask(rng, ("填上量词：{w}有{n}（ ）{t}。", "“{n}（ ）{t}”应该用什么量词？主语是{w}。", "{w}买了{n}__{t}，空格里填什么？"), w=who, n=amount, t=noun)
    return prompt, f"“{noun}”的量词是“{word}”。\n{who}有{amount}{word}{noun}。"


def _numeral(rng: Random) -> tuple[str, str]:
    n = rng.randint(10, 9999)
    parts = [f"{digit}在{place}位" for digit, place in zip(reversed(str(n)), ("个", "十", "百", "千"), strict=False)]
    return _ask(rng, ("{n}用汉字怎么写？", "把{n}写成中文数字。", "数字{n}怎么读？"), n=n), "，".join(reversed(parts)) + f"。\n{n}写作：{numeral(n)}"


def _opposite(rng: Random) -> tuple[str, str]:
    pairs = rng.sample(OPPOSITES, 3)
    pairs = [pair if rng.random() < 0.5 else pair[::-1] for pair in pairs]
    words = "、".join(a for a, _ in pairs)
    return _ask(rng, ("写出反义词：{w}。", "{w}的反义词分别是什么？", "请给出下列词的反义词：{w}。"), w=words), "\n".join(f"“{a}”的反义词是“{b}”。" for a, b in pairs)


def _ba(rng: Random) -> tuple[str, str]:
    who, noun, (_, done) = rng.choice(NAMES), rng.choice(list(NOUNS)), rng.choice(VERBS)
    time = rng.choice(TIMES)
    ba, bei = f"{time}{who}把{noun}{done}。", f"{time}{noun}被{who}{done}。"
    if rng.random() < 0.5:
        return _ask(rng, ("改成“被”字句：{s}", "把“{s}”改为被字句。"), s=ba), f"主语是“{who}”，宾语是“{noun}”。\n{bei}"
    return _ask(rng, ("改成“把”字句：{s}", "把“{s}”改为把字句。"), s=bei), f"动作的人是“{who}”，东西是“{noun}”。\n{ba}"


def _question(rng: Random) -> tuple[str, str]:
    who, place, time = rng.choice(NAMES), rng.choice(PLACES), rng.choice(TIMES)
    kind, answer = rng.choice((("谁", f"谁{time}去{place}？"), ("哪里", f"{who}{time}去哪里？"), ("什么时候", f"{who}什么时候去{place}？"), ("吗", f"{who}{time}去{place}吗？")))
    return _ask(rng, ("用“{k}”提问：{w}{t}去{p}。", "把“{w}{t}去{p}。”改成用“{k}”的问句。"), k=kind, w=who, t=time, p=place), answer


def _translate(rng: Random) -> tuple[str, str]:
    n, place = rng.randint(2, 10), rng.choice((("公园", "park"), ("学校", "school"), ("市场", "market"), ("车站", "station"), ("花园", "garden"), ("商店", "shop")))
    (noun, (word, english)), (old, en) = rng.choice(list(NOUNS.items())), rng.choice((("新", "new"), ("旧", "old"), ("大", "big"), ("小", "small"), ("红", "red"), ("白", "white")))
    chinese = f"{place[0]}里有{'两' if n == 2 else numeral(n)}{word}{old}{noun}。"
    plural = {"fish": "fish"}.get(english, english + "s")
    text = f"There are {n} {en} {plural} in the {place[1]}."
    if rng.random() < 0.5:
        return _ask(rng, ("翻译成中文：{s}", "“{s}”用中文怎么说？"), s=text), f"{en}：{old}\n{english}：{noun}\n{place[1]}：{place[0]}\n{chinese}"
    return _ask(rng, ("翻译成英文：{s}", "“{s}”用英文怎么说？"), s=chinese), f"{old}：{en}\n{noun}：{english}\n{place[0]}：{place[1]}\n{text}"


def _clock(rng: Random) -> tuple[str, str]:
    hour, minute, later = rng.randint(1, 11), rng.choice((5, 10, 15, 20, 30)), rng.choice((10, 15, 20, 25))
    who, place, total = rng.choice(NAMES), rng.choice(PLACES), 0
    total = minute + later
    prompt = _ask(rng, ("{w}{h}点{m}分出发，走了{l}分钟到{p}，几点到？", "现在是{h}点{m}分，{w}还要{l}分钟到{p}。到的时候是几点？"), w=who, h=hour, m=minute, l=later, p=place)
    return prompt, f"{minute} + {later} = {total}\n{who}{numeral(hour) if hour != 2 else '两'}点{numeral(total)}分到{place}。"


def _sentence(rng: Random) -> tuple[str, str]:
    who, place, noun, time = rng.choice(NAMES), rng.choice(PLACES), rng.choice(list(NOUNS)), rng.choice(TIMES)
    joiner, text = rng.choice((("因为……所以", f"因为{time}是{rng.choice(WEATHER)}，所以{who}没有去{place}找{noun}。"), ("虽然……但是", f"虽然{place}很远，但是{who}{time}还是去看了{noun}。"), ("一边……一边", f"{time}{who}在{place}一边看{noun}，一边和朋友说话。")))
    return _ask(rng, ("用“{j}”造句，写{w}、{p}和{n}。", "请用“{j}”说一句话，要有{w}、{n}、{p}。"), j=joiner, w=who, p=place, n=noun), text


def _days_scene(rng: Random, who: str, place: str, noun: str) -> list[str]:
    word, friend = NOUNS[noun][0], rng.choice([other for other in NAMES if other != who])
    return [
        f"{rng.choice(('早上', '中午', '下午'))}，{who}和{friend}一起去{place}。",
        f"那是一个{rng.choice(WEATHER)}，路上的人{rng.choice(('很多', '不多', '都走得很快'))}。",
        f"在{place}，他们看见了一{word}{rng.choice(('漂亮的', '很大的', '很小的', '旧旧的'))}{noun}。",
        f"{friend}说：“{rng.choice(('我们把它带回家吧', '这是谁的呢', '它真好看', '我也想要一' + word))}！”",
        f"{who}想了想，说：“{rng.choice(('先问问别人', '不要着急', '我们再等一等', '好的，没问题'))}。”",
        f"过了{rng.choice(('一会儿', '半个小时', '很久'))}，一位{rng.choice(('老人', '老师', '司机', '孩子'))}走过来，{rng.choice(('笑着看他们', '说那是他的', '向他们问好'))}。",
        f"大家都觉得很{rng.choice(FEELINGS)}，一起{rng.choice(('唱歌', '喝茶', '吃苹果', '照相'))}。",
    ]


def _next_day(rng: Random, who: str, place: str) -> list[str]:
    noun, friend = rng.choice(list(NOUNS)), rng.choice([other for other in NAMES if other != who])
    return [
        f"第二天，{who}又想起了{place}的事，心里很{rng.choice(FEELINGS)}。",
        f"{friend}问：“{rng.choice(('你在想什么', '我们还去吗', '昨天你看见了什么'))}？”",
        f"{who}回答说：“{rng.choice(('我想再去看一看', '我想送给他一' + NOUNS[noun][0] + noun, '那里的人真好'))}。”",
        f"于是他们带上一{NOUNS[noun][0]}{noun}，{rng.choice(('慢慢地', '很快地', '高兴地'))}出发了。",
        f"到了那里，{rng.choice(('门还没有开', '大家都在等他们', '一个人也没有'))}，他们就{rng.choice(('坐下来休息', '在外面等着', '写了一封信'))}。",
    ]


def _story(rng: Random) -> tuple[str, str]:
    who, place, noun = rng.choice(NAMES), rng.choice(PLACES), rng.choice(list(NOUNS))
    prompt = _ask(rng, ("写一个关于{w}、{p}和{n}的故事。", "请讲一个故事：{w}在{p}看见了{n}。", "以“{p}里的{n}”为题写一篇作文，主人公是{w}。"), w=who, p=place, n=noun)
    end = rng.choice(("这一天让他们很难忘。", "从那以后，他们常常来这里。", "原来，帮助别人是最快乐的事。"))
    return prompt, f"很久以前，{who}就想去{place}看一看。" + "".join([*_days_scene(rng, who, place, noun), *_next_day(rng, who, place)]) + end


def _diary(rng: Random) -> tuple[str, str]:
    month, day, place, noun, who = rng.randint(1, 12), rng.randint(1, 28), rng.choice(PLACES), rng.choice(list(NOUNS)), rng.choice(NAMES)
    prompt = _ask(rng, ("替{w}写一篇日记，日期是{m}月{d}日，去了{p}，看到{n}。", "{m}月{d}日{w}去{p}看{n}，请写成日记。"), w=who, m=month, d=day, p=place, n=noun)
    return prompt, f"{month}月{day}日　{rng.choice(WEATHER)}\n" + "".join([*_days_scene(rng, who, place, noun), *_next_day(rng, who, place)]) + f"晚上回到家，我觉得{rng.choice(FEELINGS)}，把这件事写了下来。希望明天也是美好的一天。"


def _plan(rng: Random) -> tuple[str, str]:
    who, places = rng.choice(NAMES), rng.sample(PLACES, 7)
    prompt = _ask(rng, ("给{w}做一个一周计划，要去{l}。", "{w}这个星期想去{l}，请按天安排。"), w=who, l="、".join(places))
    lines = []
    for day, place in zip("一二三四五六日", places, strict=False):
        noun = rng.choice(list(NOUNS))
        lines.append(f"星期{day}：{rng.choice(('上午八点', '上午九点', '下午两点', '下午三点', '下午四点', '晚上七点'))}去{place}，看{rng.choice(('一', '两', '三'))}{NOUNS[noun][0]}{noun}，和{rng.choice(NAMES)}{rng.choice(('说话', '喝茶', '照相'))}，天气是{rng.choice(WEATHER)}，心情{rng.choice(FEELINGS)}。")
    return prompt, numbered(lines)


CORPUS = Corpus(
    "chinese",
    {"measure": _measure, "numeral": _numeral, "opposite": _opposite, "ba": _ba, "question": _question, "translate": _translate, "clock": _clock, "sentence": _sentence},
    {"story": _story, "diary": _diary, "plan": _plan},
)
