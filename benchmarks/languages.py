"""Tools and questions in several languages, written for this project."""
# ruff: noqa: RUF001 - letters of other scripts look like Latin ones

from fairlead.catalog.search.index import SearchDocument
from fairlead.catalog.tools import ToolKey

TOOLS: dict[str, dict[str, str]] = {
    "Chinese": {
        "get_weather": "查询指定城市的天气预报和气温。",
        "send_mail": "向联系人发送电子邮件。",
        "book_train": "预订火车票并选择座位。",
        "translate": "把文本翻译成另一种语言。",
        "delete_file": "删除文件夹中的文件。",
    },
    "Japanese": {
        "get_weather": "指定した都市の天気予報を取得します。",
        "send_mail": "連絡先に電子メールを送信します。",
        "book_train": "新幹線の切符を予約します。",
        "translate": "文章を別の言語に翻訳します。",
        "delete_file": "フォルダー内のファイルを削除します。",
    },
    "Korean": {
        "get_weather": "지정한 도시의 날씨 예보를 조회합니다.",
        "send_mail": "연락처에 이메일을 보냅니다.",
        "book_train": "기차표를 예약하고 좌석을 고릅니다.",
        "translate": "텍스트를 다른 언어로 번역합니다.",
        "delete_file": "폴더에 있는 파일을 삭제합니다.",
    },
    "Russian": {
        "get_weather": "Показывает прогноз погоды для выбранного города.",
        "send_mail": "Отправляет электронное письмо получателю.",
        "book_train": "Бронирует билеты на поезд.",
        "translate": "Переводит текст на другой язык.",
        "delete_file": "Удаляет файлы из папки.",
    },
    "Arabic": {
        "get_weather": "يعرض توقعات الطقس لمدينة محددة.",
        "send_mail": "يرسل رسالة بريد إلكتروني إلى جهة اتصال.",
        "book_train": "يحجز تذاكر القطار ويختار المقعد.",
        "translate": "يترجم النصوص إلى لغة أخرى.",
        "delete_file": "يحذف الملفات من المجلد.",
    },
    "French": {
        "get_weather": "Donne les prévisions météo d'une ville.",
        "send_mail": "Envoie un courriel à un destinataire.",
        "book_train": "Réserve des billets de train.",
        "translate": "Traduit un texte dans une autre langue.",
        "delete_file": "Efface des fichiers d'un répertoire.",
    },
    "German": {
        "get_weather": "Zeigt die Wettervorhersage für eine Stadt.",
        "send_mail": "Verschickt eine Nachricht an Empfänger.",
        "book_train": "Bucht Fahrkarten für den Zug.",
        "translate": "Übersetzt einen Text in eine andere Sprache.",
        "delete_file": "Löscht Dateien aus einem Ordner.",
    },
    "Ukrainian": {
        "get_weather": "Показує прогноз погоди для вибраного міста.",
        "send_mail": "Надсилає електронний лист одержувачу.",
        "book_train": "Бронює квитки на поїзд.",
        "translate": "Перекладає текст іншою мовою.",
        "delete_file": "Видаляє файл із теки.",
    },
    "Hebrew": {
        "get_weather": "מציג את תחזית מזג האוויר לעיר.",
        "send_mail": "שולח הודעת דואר אלקטרוני לנמען.",
        "book_train": "מזמין כרטיסים לרכבת.",
        "translate": "מתרגם טקסט לשפה אחרת.",
        "delete_file": "מוחק קובץ מהתיקייה.",
    },
    "Hindi": {
        "get_weather": "किसी शहर के मौसम का पूर्वानुमान दिखाता है।",
        "send_mail": "संपर्क को ईमेल संदेश भेजता है।",
        "book_train": "रेलगाड़ी का टिकट आरक्षित करता है।",
        "translate": "पाठ का दूसरी भाषा में अनुवाद करता है।",
        "delete_file": "फ़ोल्डर से फ़ाइल मिटाता है।",
    },
    "Thai": {
        "get_weather": "แสดงพยากรณ์อากาศของเมืองที่เลือก",
        "send_mail": "ส่งจดหมายอิเล็กทรอนิกส์ถึงผู้รับ",
        "book_train": "จองตั๋วรถไฟและเลือกที่นั่ง",
        "translate": "แปลข้อความเป็นภาษาอื่น",
        "delete_file": "ลบไฟล์ในโฟลเดอร์",
    },
    "Vietnamese": {
        "get_weather": "Xem dự báo thời tiết của một thành phố.",
        "send_mail": "Gửi thư điện tử cho người nhận.",
        "book_train": "Đặt vé tàu hỏa và chọn chỗ ngồi.",
        "translate": "Dịch văn bản sang ngôn ngữ khác.",
        "delete_file": "Xóa tệp trong thư mục.",
    },
    "Turkish": {
        "get_weather": "Seçilen ŞEHRİN hava DURUMUNU gösterir.",
        "send_mail": "Alıcıya e-posta iletisi gönderir.",
        "book_train": "Tren BİLETİ ayırır.",
        "translate": "Metni başka bir dile çevirir.",
        "delete_file": "Klasördeki dosyayı kalıcı olarak siler.",
    },
    "Greek": {
        "get_weather": "Δείχνει την πρόγνωση του καιρού για μια πόλη.",
        "send_mail": "Στέλνει ηλεκτρονικό μήνυμα σε παραλήπτη.",
        "book_train": "Κλείνει εισιτήρια για το τρένο.",
        "translate": "Μεταφράζει κείμενα σε άλλη γλώσσα.",
        "delete_file": "Διαγράφει αρχεία από έναν φάκελο.",
    },
}
"""By language, descriptions of the same tools."""

QUESTIONS: dict[str, dict[str, str]] = {
    "Chinese": {
        "明天北京的天气怎么样": "get_weather",
        "给老板发送一封邮件": "send_mail",
        "我要订火车票": "book_train",
        "帮我翻译这段话": "translate",
        "删除这个文件": "delete_file",
    },
    "Japanese": {
        "東京の天気を教えて": "get_weather",
        "上司にメールを送信したい": "send_mail",
        "切符の予約をお願い": "book_train",
        "この文を翻訳して": "translate",
        "ファイルを消す、削除": "delete_file",
    },
    "Korean": {
        "내일 서울 날씨 어때": "get_weather",
        "동료에게 이메일 보내줘": "send_mail",
        "기차표 예약해줘": "book_train",
        "이 문장을 번역해줘": "translate",
        "파일 삭제해줘": "delete_file",
    },
    "Russian": {
        "какая завтра погода в Москве": "get_weather",
        "отправить письмо коллеге": "send_mail",
        "забронируй билет на поезда": "book_train",
        "перевести тексты": "translate",
        "удалить файл": "delete_file",
    },
    "Arabic": {
        "ما هو الطَّقس في القاهرة": "get_weather",
        "أريد كتابة رسالة بريد": "send_mail",
        "حجز تذكرة قطار": "book_train",
        "ترجم هذه النصوص": "translate",
        "حذف ملف": "delete_file",
    },
    "French": {
        "quelle est la meteo à Lyon": "get_weather",
        "envoyer un courriel": "send_mail",
        "reserver un billet de train": "book_train",
        "traduire ce texte": "translate",
        "effacer un fichier du repertoire": "delete_file",
    },
    "German": {
        "wie wird das Wetter, Vorhersage für die Stadt": "get_weather",
        "eine Nachricht verschicken": "send_mail",
        "Fahrkarte für den Zug": "book_train",
        "Text ubersetzen in eine Sprache": "translate",
        "Dateien loschen": "delete_file",
    },
    "Ukrainian": {
        "яка завтра погода у Львові": "get_weather",
        "електронного листа колезі": "send_mail",
        "квиток на поїзд": "book_train",
        "переклади цей текст": "translate",
        "видали файли": "delete_file",
    },
    "Hebrew": {
        "מה מזג אוויר בחיפה": "get_weather",
        "לשלוח את ההודעה": "send_mail",
        "כרטיס רכבת לתל אביב": "book_train",
        "תרגום של הטֶקְסְט": "translate",
        "הקובץ בתיקייה": "delete_file",
    },
    "Hindi": {
        "कल दिल्ली में मौसम कैसा रहेगा": "get_weather",
        "मित्र को संदेश": "send_mail",
        "दो टिकटें चाहिए": "book_train",
        "इस वाक्य का अनुवाद": "translate",
        "पुरानी फ़ाइलें": "delete_file",
    },
    "Thai": {
        "พรุ่งนี้อากาศที่เชียงใหม่เป็นอย่างไร": "get_weather",
        "อยากส่งจดหมายถึงเพื่อน": "send_mail",
        "ซื้อตั๋วรถไฟ": "book_train",
        "ช่วยแปลประโยคนี้": "translate",
        "ลบไฟล์เก่า": "delete_file",
    },
    "Vietnamese": {
        "thoi tiet Ha Noi ngay mai": "get_weather",
        "gửi thư cho sếp": "send_mail",
        "dat ve tau": "book_train",
        "dịch câu này": "translate",
        "xoa tep": "delete_file",
    },
    "Turkish": {
        "Ankara hava durumunu": "get_weather",
        "e-posta iletisi": "send_mail",
        "tren bileti": "book_train",
        "bu metni çevirir misin": "translate",
        "dosyayi KALICI sil": "delete_file",
    },
    "Greek": {
        "τι καιρο κάνει στην Πάτρα, πρόγνωση": "get_weather",
        "θέλω να στείλω μηνύματα": "send_mail",
        "εισιτήριο τρένου": "book_train",
        "μετάφραση, κείμενο": "translate",
        "διαγραφή αρχείου": "delete_file",
    },
}
"""By language, queries and the tools that they ask for."""


def documents(language: str) -> list[SearchDocument]:
    """The tools of one language; their names are no words of it."""
    return [
        SearchDocument(key=ToolKey("office", name), name=f"t{number}", description=description)
        for number, (name, description) in enumerate(TOOLS[language].items())
    ]
