"""Words that tell a gender, in pairs: male, female."""

from __future__ import annotations

__all__ = ["NAMES", "NAME_LIKE", "NOUNS", "ROLES", "TITLES"]


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (pair.split() for pair in text.split(","))
    return tuple((male, female) for male, female in pairs)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before names, and only there. The first pair of a word is the one it turns into.
TITLES = _pairs("mr ms, mr mrs, mr miss, sir dame")

# What people do, or are to each other, and what may stand before a name: "Chairman Lee", "Uncle Tom".
ROLES = _pairs("""
    actor actress, actors actresses, alderman alderwoman, anchorman anchorwoman, assemblyman assemblywoman,
    businessman businesswoman, businessmen businesswomen, cameraman camerawoman, chairman chairwoman,
    chairmen chairwomen, congressman congresswoman, congressmen congresswomen, councilman councilwoman,
    councilmen councilwomen, frontman frontwoman, grandpa grandma, policeman policewoman, policemen policewomen,
    salesman saleswoman, salesmen saleswomen, spokesman spokeswoman, spokesmen spokeswomen, sportsman sportswoman,
    sportsmen sportswomen, uncle aunt, uncles aunts, waiter waitress, waiters waitresses
""")

NOUNS = _pairs("""
    baron baroness, boy girl, boyfriend girlfriend, boyfriends girlfriends, boyhood girlhood, boys girls,
    brother sister, brotherly sisterly, brothers sisters, dad mom, dad mum, daddy mommy, dads moms, duke duchess,
    emperor empress, father mother, fatherhood motherhood, fatherly motherly, fathers mothers, gentleman lady,
    gentlemen ladies, godfather godmother, godson goddaughter, grandfather grandmother, grandfathers grandmothers,
    grandson granddaughter, grandsons granddaughters, groom bride, heir heiress, heirs heiresses, hero heroine,
    heroes heroines, husband wife, husbands wives, king queen, kings queens, landlord landlady, landlords landladies,
    male female, males females, man woman, manhood womanhood, masculine feminine, masculinity femininity, men women,
    monk nun, monks nuns, nephew niece, nephews nieces, prince princess, princes princesses, son daughter,
    sons daughters, stepbrother stepsister, stepfather stepmother, stepson stepdaughter, widower widow, widowers widows
""")

# Capitalised, these are surnames, brands or titles of a name rather than what they mean.
NAME_LIKE = _words("baron baroness duchess duke groom king man monk nun prince princess queen")

# Common first names of about the same time; none is a word or goes with both genders.
NAMES = _pairs("""
    adam eve, alexander alexandra, andrew andrea, anthony julia, benjamin hannah, brian lisa, charles charlotte,
    christopher christina, daniel danielle, david deborah, edward helen, eric erica, george georgia, henry alice,
    jack lucy, jacob sarah, james emma, jason melissa, john mary, joseph josephine, joshua rachel, kevin karen,
    liam olivia, matthew martha, michael michelle, nathan natalie, nicholas nicole, noah sophia, oliver isabella,
    patrick patricia, paul paula, peter laura, philip caroline, richard susan, robert barbara, simon simone,
    stephen stephanie, steven jennifer, thomas elizabeth, timothy kimberly, victor victoria, william amanda
""")
